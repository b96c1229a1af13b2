"""Tokenizers of every kind: round trips, special tokens as text, and the same ids from every kind of file."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from mixed_lines import mixed_lines

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.checkpoint.tiny import FOLDER
from palmette.runtime.errors import DamagedModel, InvalidRequest, ModelError, Unsupported
from palmette.runtime.text.byte_level import byte_alphabet
from palmette.runtime.text.chat_template import ChatTemplate
from palmette.runtime.text.folder_tokenizer import folder_tokenizer
from palmette.runtime.text.gguf_tokenizer import gguf_tokenizer
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.text.sentence_piece import PieceType
from palmette.runtime.text.tokenizer import Tokenizer

PATH = Path("model.gguf")
TINY = load_tokenizer(resolve("tiny"))
LINES = mixed_lines(2000, data=None)


def gguf_metadata_of_tiny(**changes: Any) -> dict[str, Any]:
    """The tiny tokenizer as a GGUF converter would write it."""
    content = json.loads((FOLDER / "tokenizer.json").read_text())
    vocabulary: dict[str, int] = content["model"]["vocab"]
    special = {entry["content"] for entry in content["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    keys = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": tokens,
        "token_type": [PieceType.CONTROL if token in special else PieceType.NORMAL for token in tokens],
        "merges": [" ".join(pair) for pair in content["model"]["merges"]],
        "bos_token_id": 0,
        "eos_token_id": 2,
    } | changes
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


@given(text=st.text(max_size=60) | st.sampled_from(LINES))
def test_round_trip(text: str) -> None:
    for special in (False, True):
        assert TINY.decode(TINY.encode(text, special=special), skip_special=False) == text


def test_tiny_is_small_and_has_its_specials() -> None:
    assert TINY.vocabulary.size == 512
    assert (TINY.bos_id, TINY.eos_ids, TINY.bos_token, TINY.eos_token) == (0, (2, 0), "<|endoftext|>", "<|im_end|>")
    assert TINY.vocabulary.special_pieces == {0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>", 3: "<|tool|>"}
    assert not TINY.vocabulary.add_bos
    assert TINY.chat_template is not None


def test_special_tokens_only_where_asked_for() -> None:
    text = "a<|im_end|>b"
    assert 2 in TINY.encode(text, special=True)
    plain = TINY.encode(text, special=False)
    assert not set(plain) & set(TINY.vocabulary.special_pieces)
    assert TINY.decode(plain) == text
    assert TINY.decode(TINY.encode(text, special=True)) == "ab"


def test_the_library_agrees_on_mixed_lines() -> None:
    library = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    for line in LINES:
        assert TINY.encode(line, special=True) == library.encode(line, add_special_tokens=False).ids


def test_a_gguf_vocabulary_gives_the_ids_of_its_tokenizer_json() -> None:
    from_gguf = gguf_tokenizer(gguf_metadata_of_tiny(), PATH)
    assert from_gguf.vocabulary.pieces == TINY.vocabulary.pieces
    assert from_gguf.vocabulary.special_pieces == TINY.vocabulary.special_pieces
    assert (from_gguf.bos_id, from_gguf.eos_ids) == (0, (2, 0))
    for line in LINES:
        for special in (False, True):
            assert from_gguf.encode(line, special=special) == TINY.encode(line, special=special), line


def test_half_a_surrogate_is_named() -> None:
    with pytest.raises(InvalidRequest, match="character 1"):
        TINY.encode("a\ud800", special=False)


def test_the_byte_alphabet_is_the_librarys() -> None:
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert set(alphabet) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert alphabet["Ġ"] == ord(" ")
    assert alphabet["Ċ"] == ord("\n")


def splits(pre: str, text: str) -> list[str]:
    """How `pre` cuts a text, seen through a vocabulary that merges everything inside a cut."""
    metadata = gguf_metadata_of_tiny(pre=pre)
    tokenizer: Any = gguf_tokenizer(metadata, PATH)
    alphabet = byte_alphabet()
    pieces = tokenizer._plain.pre_tokenizer.pre_tokenize_str(text)
    return [bytes(alphabet[character] for character in piece).decode() for piece, _ in pieces]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "it's 2024  ok", ["it", "'s", " 2024", " ", " ok"]),
        ("smollm", "it's 2024  ok", ["it", "'s", " ", "2", "0", "2", "4", " ", " ok"]),
        ("llama-bpe", "it'S 20245  ok\n\nx!!\n", ["it", "'S", " ", "202", "45", " ", " ok", "\n\n", "x", "!!\n"]),
        ("qwen2", "it'S 202  ok\n\nx!!\n", ["it", "'S", " ", "2", "0", "2", " ", " ok", "\n\n", "x", "!!\n"]),
    ],
)
def test_texts_are_cut_as_the_models_were_trained(pre: str, text: str, pieces: list[str]) -> None:
    assert splits(pre, text) == pieces


def test_whole_words_come_before_merges_only_for_llama3() -> None:
    metadata = gguf_metadata_of_tiny(merges=["a b"], tokens=[*byte_alphabet(), "ab", "abc"], token_type=None)
    assert len(gguf_tokenizer(metadata | {"tokenizer.ggml.pre": "llama-bpe"}, PATH).encode("abc", special=False)) == 1
    assert len(gguf_tokenizer(metadata, PATH).encode("abc", special=False)) == 2


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"model": "wordpiece"}, Unsupported, "'wordpiece'"),
        ({"model": None}, Unsupported, "None"),
        ({"pre": "klingon"}, Unsupported, "'klingon'"),
        ({"pre": None}, Unsupported, "None"),
        ({"tokens": None}, DamagedModel, "tokens"),
        ({"tokens": ["a", "a"], "token_type": None}, DamagedModel, "twice"),
        ({"token_type": [1]}, DamagedModel, "1 entries for 512"),
        ({"merges": ["zz yy"]}, DamagedModel, "merges"),
        ({"merges": ["nospace"]}, DamagedModel, "merges"),
        ({"merges": [1, 2]}, DamagedModel, "merges"),
        ({"eos_token_id": 512}, DamagedModel, "512"),
        ({"bos_token_id": "x"}, DamagedModel, "'x'"),
    ],
)
def test_what_a_gguf_tokenizer_lacks_is_named(changes: dict[str, Any], error: type[ModelError], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)) as caught:
        gguf_tokenizer(gguf_metadata_of_tiny(**changes), PATH)
    assert "model.gguf" in caught.value.message
    assert caught.value.hint


def test_several_ends_of_turn_are_found() -> None:
    assert gguf_tokenizer(gguf_metadata_of_tiny(eos_token_id=None), PATH).eos_ids == (0, 2)
    assert gguf_tokenizer(gguf_metadata_of_tiny(eot_token_id=3), PATH).eos_ids == (2, 3, 0)


# --- SentencePiece ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small SentencePiece BPE model with byte fallback, trained by the real library."""
    folder = tmp_path_factory.mktemp("sentencepiece")
    text = folder / "text.txt"
    text.write_text("\n".join(line for line in LINES if line.isascii()) * 2)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "m"), model_type="bpe", vocab_size=420, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, user_defined_symbols=["<sep>"],
        character_coverage=0.98, split_digits=True, minloglevel=2,
    )  # fmt: skip
    return (folder / "m.model").read_bytes()


@pytest.fixture(scope="module")
def reference(trained: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=trained)


@pytest.fixture(scope="module")
def from_gguf(reference: sentencepiece.SentencePieceProcessor) -> Tokenizer:
    """The trained model as a GGUF converter would write it."""
    ids = range(reference.get_piece_size())

    def kind(token: int) -> PieceType:
        if reference.is_unknown(token):
            return PieceType.UNKNOWN
        if reference.is_control(token):
            return PieceType.CONTROL
        if reference.is_byte(token):
            return PieceType.BYTE
        return PieceType.USER_DEFINED if reference.id_to_piece(token) == "<sep>" else PieceType.NORMAL

    return gguf_tokenizer(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [reference.id_to_piece(token) for token in ids],
            "tokenizer.ggml.scores": [reference.get_score(token) for token in ids],
            "tokenizer.ggml.token_type": [kind(token) for token in ids],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
        },
        PATH,
    )


@pytest.fixture(scope="module")
def from_model_file(trained: bytes, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("folder")
    (folder / "tokenizer.model").write_bytes(trained)
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "bos_token": {"content": "<s>"},
                "eos_token": "</s>",
                "added_tokens_decoder": {
                    "420": {"content": "<|extra|>", "special": True},
                    "421": {"content": "<call>", "special": False},
                },
            }
        )
    )
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 420]}))
    return folder_tokenizer(folder)


def test_sentencepiece_ids_are_the_librarys(
    reference: sentencepiece.SentencePieceProcessor, from_gguf: Tokenizer, from_model_file: Tokenizer
) -> None:
    for line in LINES:
        expected = reference.encode(line, out_type=int)
        assert from_gguf.encode(line, special=False, start_of_text=True) == expected, line
        assert from_model_file.encode(line, special=False, start_of_text=True) == expected, line


def test_sentencepiece_round_trip_without_a_prefix_space(from_gguf: Tokenizer, from_model_file: Tokenizer) -> None:
    for line in LINES[::3]:
        for tokenizer in (from_gguf, from_model_file):
            tokens = tokenizer.encode(line, special=False)
            assert tokenizer.decode(tokens) == line.replace("▁", " ")
    assert from_gguf.decode(from_gguf.encode("hello", special=False, start_of_text=True)) == " hello"


def test_sentencepiece_specials_only_where_asked_for(from_gguf: Tokenizer, from_model_file: Tokenizer) -> None:
    for tokenizer in (from_gguf, from_model_file):
        parsed = tokenizer.encode("</s>a<s>", special=True)
        assert (parsed[0], parsed[-1]) == (2, 1)
        plain = tokenizer.encode("</s>a<s>", special=False)
        assert not {1, 2} & set(plain)
        assert tokenizer.decode(plain) == "</s>a<s>"
        assert tokenizer.decode(parsed) == "a"
        assert tokenizer.vocabulary.add_bos


def test_added_tokens_and_several_ends(from_model_file: Tokenizer) -> None:
    assert from_model_file.eos_ids == (2, 420)
    assert (from_model_file.bos_token, from_model_file.eos_token) == ("<s>", "</s>")
    assert 420 in from_model_file.encode("a<|extra|>", special=True)
    assert 420 not in from_model_file.encode("a<|extra|>", special=False)
    assert 421 in from_model_file.encode("a<call>", special=False)
    assert from_model_file.decode([421]) == "<call>"


def test_a_sentencepiece_like_tokenizer_json(
    reference: sentencepiece.SentencePieceProcessor, from_gguf: Tokenizer, tmp_path: Path
) -> None:
    """Llama 2's shape: ▁ put in by the normaliser, byte fallback, a prefix space."""
    pieces = [reference.id_to_piece(token) for token in range(420)]
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    pairs = [
        (vocabulary[piece], piece[:cut], piece[cut:])
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary and piece not in ("<s>", "</s>", "<unk>", "<sep>")
    ]
    library = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocabulary,
            [(left, right) for _, left, right in sorted(pairs)],
            byte_fallback=True,
            unk_token="<unk>",
            fuse_unk=True,
        )
    )
    library.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    library.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    )
    library.add_special_tokens(["<unk>", "<s>", "</s>"])
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    tokenizer = folder_tokenizer(tmp_path)
    assert tokenizer.vocabulary.pieces == from_gguf.vocabulary.pieces
    for line in LINES[::5]:
        assert tokenizer.decode(tokenizer.encode(line, special=False)) == line.replace("▁", " ")
        assert tokenizer.encode(line, special=False, start_of_text=True) == tokenizer.encode(" " + line, special=False)
        assert tokenizer.encode(line, special=True, start_of_text=True) == library.encode(line).ids or "<" in line


# --- Folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_without_a_tokenizer_or_with_a_broken_one(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no tokenizer"):
        folder_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE"}, "decoder": {"type": "ByteLevel"}}')
    with pytest.raises(DamagedModel, match=r"tokenizer\.json"):
        folder_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"decoder": {"type": "WordPiece"}}')
    with pytest.raises(ModelError, match="decodes"):
        folder_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model").write_bytes(b"nothing like it")
    with pytest.raises(DamagedModel, match=r"tokenizer\.model"):
        folder_tokenizer(tmp_path)


def said_with_tools(folder: Path) -> tuple[str, str]:
    """What the folder's template says with tools, and without."""
    template = ChatTemplate.of(folder_tokenizer(folder))
    return template.render([], tools=[{"name": "f"}]).text, template.render([]).text


def test_templates_by_place(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "m")
    folder = tmp_path / "m"
    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    assert folder_tokenizer(folder).chat_template == "D"
    named.append({"name": "tool_use", "template": "T{{ tools | length }}\n"})
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    assert said_with_tools(folder) == ("T1", "D")
    (folder / "chat_template.jinja").write_text("J")
    assert folder_tokenizer(folder).chat_template == "J"
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("U")
    assert said_with_tools(folder) == ("U", "J")
    assert load_tokenizer(resolve("tiny"), chat_template=folder / "chat_template.jinja").chat_template == "J"
    with pytest.raises(InvalidRequest, match=r"none\.jinja"):
        load_tokenizer(resolve("tiny"), chat_template=folder / "none.jinja")


def test_threads_encode_at_the_same_time_and_the_same() -> None:
    """Neither waits for the other, and the switch for special tokens is nobody else's."""
    text = "<|im_start|>user words and 2024 <|im_end|>\n" * 40
    wanted = {special: TINY.encode(text, special=special) for special in (False, True)}
    assert wanted[True] != wanted[False]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda turn: (turn % 2 == 0, TINY.encode(text, special=turn % 2 == 0)), range(200)))
    assert all(ids == wanted[special] for special, ids in found)
