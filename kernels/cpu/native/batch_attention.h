// The attention of a whole step: tiles and folds as pieces that any thread may take. Used by step.cpp.
#pragma once
#include <vector>

#include "attention.h"
#include "buffer.h"
#include "tiles.h"

namespace palmette {

// Where a step's tokens stand and where their KV lies.
struct Batch {
  int32_t tokens, rows, page_size, table_stride;
  const int32_t* positions;   // [tokens]
  const int32_t* row_starts;  // [rows + 1]
  const int32_t* tables;      // [rows][table_stride]
};

struct Heads {
  int32_t heads, kv_heads, head_dim;
  int share() const { return heads / kv_heads; }
};

// One layer's work: q and out [tokens][heads][head_dim], q already scaled.
template <class E> struct Layered {
  const Attention& kind;
  const E* keys;
  const E* values;
  const float* q;
  float* out;
};

class BatchAttention {
 public:
  BatchAttention(const Heads& heads, int threads) : heads_(heads), scratch_(threads) {}

  void plan(const Batch& batch) {
    batch_ = batch;
    plan_.make(batch.rows, batch.row_starts, batch.positions, batch.tables, batch.table_stride, batch.page_size, heads_.share());
    states_.need(size_t(plan_.states) * heads_.heads * (shape<float>().padded_dim + 2));
  }
  template <class E> PageShape shape() const {
    return PageShape(batch_.page_size, heads_.kv_heads, heads_.head_dim, Element<E>::SCALE);
  }
  int tiles() const { return int(plan_.tiles.size()) * heads_.kv_heads; }
  int folds() const { return int(plan_.folds.size()) * heads_.kv_heads; }  // after all tiles

  template <class E> void attend(const Layered<E>& layer, int thread, int piece) {
    const Tile& tile = plan_.tiles[piece / heads_.kv_heads];
    const int head = piece % heads_.kv_heads, rows = tile.tokens * tile.heads;
    const PageShape shape = this->shape<E>();
    const View<E> kv{layer.keys, layer.values, batch_.tables + int64_t(tile.row) * batch_.table_stride, shape, head};
    const int dim = shape.head_dim, dims = shape.padded_dim;
    alignas(64) typename Element<E>::Pair q[TILE * MOST_HEAD_DIM / 2];
    int32_t positions[TILE];
    const auto head_at = [&](int r) { return head * heads_.share() + tile.head + r % tile.heads; };
    const auto at = [&](int r) { return (int64_t(tile.token[r / tile.heads]) * heads_.heads + head_at(r)) * dim; };
    int first = std::numeric_limits<int>::max(), last = 0;
    for (int r = 0; r < rows; r++) {
      pair_up<E>(layer.q + at(r), dim, q + r, rows);
      positions[r] = batch_.positions[tile.token[r / tile.heads]];
      first = std::min(first, layer.kind.first_seen(positions[r])), last = std::max(last, positions[r]);
    }
    float* memory = scratch_[thread].need(size_t(2) * TILE * (dims + 2) + size_t(BLOCK) * dim);
    const auto state_at = [&](float* from) { return State{from, from + TILE, from + 2 * TILE}; };
    State state = state_at(memory), next = state_at(memory + TILE * (dims + 2));
    E* keys = reinterpret_cast<E*>(memory + 2 * TILE * (dims + 2));
    if (tile.split != Tile::ALL) {
      if ((tile.split + 1) * SPLIT <= first) return;  // before every window: no fold will read it
      attend_split<E>(rows, kv, layer.kind, tile.split * SPLIT, positions, q, state, keys);
      for (int r = 0; r < rows; r++) copy_row(kept(tile.state[r / tile.heads], head), r % tile.heads, state, r, dims);
      return;
    }
    attend_split<E>(rows, kv, layer.kind, first / SPLIT * SPLIT, positions, q, state, keys);
    for (int split = first / SPLIT + 1; split * SPLIT <= last; split++) {
      attend_split<E>(rows, kv, layer.kind, split * SPLIT, positions, q, next, keys);
      palmette::fold(state, next, rows, dims);
    }
    for (int r = 0; r < rows; r++) finish<E>(state, r, shape, sink(layer.kind, head_at(r)), layer.out + at(r));
  }

  template <class E> void fold(const Layered<E>& layer, int piece) {
    const Fold& folded = plan_.folds[piece / heads_.kv_heads];
    const int head = piece % heads_.kv_heads, share = heads_.share();
    const PageShape shape = this->shape<E>();
    const int first = layer.kind.first_seen(batch_.positions[folded.token]) / SPLIT;
    State state = kept(folded.first + first, head);
    for (int split = first + 1; split < folded.splits; split++)
      palmette::fold(state, kept(folded.first + split, head), share, shape.padded_dim);
    for (int r = 0; r < share; r++) {
      const int at = head * share + r;
      float* out = layer.out + (int64_t(folded.token) * heads_.heads + at) * shape.head_dim;
      finish<E>(state, r, shape, sink(layer.kind, at), out);
    }
  }

 private:
  static const float* sink(const Attention& kind, int head) { return kind.sinks == nullptr ? nullptr : kind.sinks + head; }

  // Where a state of a KV head lies: maxima, sums and values of the group's heads.
  State kept(int state, int head) const {
    const int share = heads_.share();
    float* at = states_.data + (int64_t(state) * heads_.kv_heads + head) * share * (shape<float>().padded_dim + 2);
    return State{at, at + share, at + 2 * share};
  }

  const Heads heads_;
  Batch batch_{};
  TilePlan plan_;
  Buffer<float> states_;
  std::vector<Buffer<float>> scratch_;  // a thread's own
};

}  // namespace palmette
