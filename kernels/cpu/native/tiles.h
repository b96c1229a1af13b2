// How a step's attention is cut into tiles. Tiles decide speed alone: each (query row, split) has one state whatever it is
// computed beside, and a row's splits are folded in order.
//
// Cascade: single-token rows whose block tables agree over a whole split are one tile there, so that KV which requests
// share is read and widened once for all of them. This is a loop interchange, never a merge at the shared length.
#pragma once
#include <algorithm>
#include <vector>

#include "attention.h"

namespace palmette {

// Of one KV head: `tokens` members × `heads` query heads of its group, from `head` on; at most TILE rows.
struct Tile {
  int32_t row;  // whose block table is read; the members' agree with it where they meet
  int32_t tokens, head, heads;
  int32_t split;        // the split to compute, leaving states; or ALL, folded and finished in the tile
  int32_t token[TILE];  // indices into the step
  int32_t state[TILE];  // a member's state of the split
  static constexpr int32_t ALL = -1;
};

// A token whose splits were computed apart: states first … first + splits − 1, in order.
struct Fold {
  int32_t token, first, splits;
};

class TilePlan {
 public:
  std::vector<Tile> tiles;
  std::vector<Fold> folds;
  int states = 0;

  // positions [tokens], row_starts [rows + 1], tables [rows][stride].
  void make(int rows, const int32_t* row_starts, const int32_t* positions, const int32_t* tables, int stride, int page_size,
            int share) {
    tiles.clear(), folds.clear(), singles_.clear();
    states = 0;
    for (int row = 0; row < rows; row++) {
      const int begin = row_starts[row], end = row_starts[row + 1];
      const int splits = positions[end - 1] / SPLIT + 1;
      if (end - begin == 1 && splits > 1 && share <= TILE) {
        singles_.push_back(Single{row, begin, splits, states});
        folds.push_back(Fold{begin, states, splits});
        states += splits;
      } else {
        whole(row, begin, end, share);
      }
    }
    const auto table = [&](const Single& single) { return tables + int64_t(single.row) * stride; };
    std::sort(singles_.begin(), singles_.end(), [&](const Single& a, const Single& b) {
      const int pages = (std::min(a.splits, b.splits) - 1) * SPLIT / page_size;
      const int order = std::memcmp(table(a), table(b), sizeof(int32_t) * pages);
      return order != 0 ? order < 0 : a.splits != b.splits ? a.splits < b.splits : a.row < b.row;
    });
    int most = 0;
    for (const Single& single : singles_) most = std::max(most, single.splits);
    for (int split = 0; split < most; split++) {
      const int from = split * SPLIT / page_size, pages = ((split + 1) * SPLIT - 1) / page_size + 1 - from;
      const Single* before = nullptr;  // the one before it, where both see all of the split
      for (const Single& single : singles_) {
        if (single.splits <= split) continue;
        const bool full = split < single.splits - 1;
        const bool together = full && before != nullptr && (tiles.back().tokens + 1) * share <= TILE &&
                              std::memcmp(table(*before) + from, table(single) + from, sizeof(int32_t) * pages) == 0;
        if (!together) tiles.push_back(Tile{single.row, 0, 0, share, split, {}, {}});
        Tile& tile = tiles.back();
        tile.token[tile.tokens] = single.token, tile.state[tile.tokens] = single.state + split;
        tile.tokens++;
        before = full ? &single : nullptr;
      }
    }
  }

 private:
  struct Single {
    int32_t row, token, splits, state;
  };

  // Tiles that go through all splits by themselves: consecutive tokens of a row, or part of a token's heads.
  void whole(int row, int begin, int end, int share) {
    const int tokens = std::max(1, TILE / share);
    for (int token = begin; token < end; token += tokens)
      for (int head = 0; head < share; head += TILE) {
        Tile tile{row, std::min(tokens, end - token), head, std::min(TILE, share - head), Tile::ALL, {}, {}};
        for (int i = 0; i < tile.tokens; i++) tile.token[i] = token + i;
        tiles.push_back(tile);
      }
  }

  std::vector<Single> singles_;
};

}  // namespace palmette
