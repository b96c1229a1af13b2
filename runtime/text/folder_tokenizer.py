"""The tokenizer of a Hugging Face folder: tokenizer.json, else tokenizer.model. Called by load.py."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from palmette.runtime.checkpoint.hf_config import read_json
from palmette.runtime.errors import DamagedModel, ModelError
from palmette.runtime.text.byte_level import LibraryTokenizer, byte_level_pieces, sentencepiece_piece, vocabulary
from palmette.runtime.text.sentence_piece import SentencePieceTokenizer, load_processor
from palmette.runtime.text.tokenizer import SpecialTokens, Tokenizer

_REFETCH = "Fetch or copy the model's folder again."


def folder_tokenizer(folder: Path, chat_template: str | None = None) -> Tokenizer:
    """Raises ModelError where the folder has no tokenizer that can be read, DamagedModel for a broken one."""
    if (folder / "tokenizer.json").is_file():
        return _from_json(folder, chat_template)
    if (folder / "tokenizer.model").is_file():
        return _from_sentencepiece(folder, chat_template)
    raise ModelError(
        f"{str(folder)!r} has no tokenizer.",
        hint="Put the model's tokenizer.json, or its SentencePiece tokenizer.model, into the folder.",
    )


class _Settings:
    """tokenizer_config.json, generation_config.json, config.json and the template files, each optional."""

    def __init__(self, folder: Path, chat_template: str | None) -> None:
        self.folder = folder
        self.tokenizer = _optional(folder / "tokenizer_config.json")
        self._template = chat_template

    def special(self, ids: dict[str, int], *, add_bos: bool) -> SpecialTokens:
        """`ids`: every token's text → id."""
        declared = [_optional(self.folder / name) for name in ("generation_config.json", "config.json")]
        eos = [ids[text] for text in [_token_text(self.tokenizer.get("eos_token"))] if text in ids]
        for values in declared:
            named = values.get("eos_token_id")
            eos.extend(token for token in (named if isinstance(named, list) else [named]) if isinstance(token, int))
        bos_text = _token_text(self.tokenizer.get("bos_token"))
        bos = ids.get(bos_text) if bos_text else None
        if bos is None and "bos_token" not in self.tokenizer:
            bos = next((token for v in declared if isinstance(token := v.get("bos_token_id"), int)), None)
        return SpecialTokens(
            bos_id=bos,
            eos_ids=tuple(dict.fromkeys(eos)),
            add_bos=bos is not None and bool(self.tokenizer.get("add_bos_token", add_bos)),
            chat_template=self._template or self._own_template(),
        )

    def _own_template(self) -> str | None:
        file = self.folder / "chat_template.jinja"
        if file.is_file():
            named = {"default": file.read_text(encoding="utf-8")}
            more = self.folder / "additional_chat_templates" / "tool_use.jinja"
            if more.is_file():
                named["tool_use"] = more.read_text(encoding="utf-8")
            return one_template(named)
        template = _optional(self.folder / "chat_template.json").get(
            "chat_template", self.tokenizer.get("chat_template")
        )
        if isinstance(template, list):
            entries = [entry for entry in template if isinstance(entry, dict)]
            return one_template({str(entry.get("name")): str(entry.get("template", "")) for entry in entries})
        return template if isinstance(template, str) else None


def one_template(named: Mapping[str, str]) -> str | None:
    """Of several templates the one for chats; where another is for chats with tools, both in one."""
    default = named.get("default", next(iter(named.values()), None))
    with_tools = named.get("tool_use")
    if default is None or with_tools is None or with_tools == default:
        return default
    # jinja drops the line feed at a template's end; at the end of a part it has to be dropped here.
    first, other = (text.removesuffix("\n") for text in (with_tools, default))
    return f"{{% if tools %}}{first}{{% else %}}{other}{{% endif %}}"


def _from_json(folder: Path, chat_template: str | None) -> LibraryTokenizer:
    path = folder / "tokenizer.json"
    content = read_json(path)
    byte_level = _mentions(content.get("decoder"), "ByteLevel")
    if not byte_level and not _mentions(content.get("decoder"), "ByteFallback", "Metaspace"):
        raise ModelError(
            f"{str(path)!r} decodes in a way that isn't supported.",
            hint="Byte-level BPE and SentencePiece-like tokenizers (byte fallback or metaspace) are supported.",
        )
    dummy_prefix = _take_prefix_away(content)
    try:
        library = tokenizers.Tokenizer.from_str(msgspec.json.encode(content).decode())
    except Exception as error:  # the library raises plain Exception
        raise DamagedModel(f"{str(path)!r} is not a sound tokenizer: {error}", hint=_REFETCH) from error
    library.no_padding()
    library.no_truncation()
    ids: dict[str, int] = library.get_vocab(with_added_tokens=True)
    added = library.get_added_tokens_decoder()
    pieces = [b""] * (max(ids.values()) + 1)
    plain = [text for text, token in ids.items() if token not in added]
    converted = byte_level_pieces(plain) if byte_level else [sentencepiece_piece(text) for text in plain]
    for text, piece in zip(plain, converted, strict=True):
        pieces[ids[text]] = piece
    for token, entry in added.items():
        pieces[token] = entry.content.encode()
    written = {token: entry.content for token, entry in added.items() if entry.special}
    settings = _Settings(folder, chat_template)
    special = settings.special(ids, add_bos=False)
    if special.bos_id is not None and "add_bos_token" not in settings.tokenizer:
        starts = library.encode("a", add_special_tokens=True).ids[:1] == [special.bos_id]
        special = msgspec.structs.replace(special, add_bos=starts)
    return LibraryTokenizer(library, vocabulary(pieces, written, special), special, dummy_prefix=dummy_prefix)


def _from_sentencepiece(folder: Path, chat_template: str | None) -> SentencePieceTokenizer:
    path = folder / "tokenizer.model"
    model = path.read_bytes()
    processor = load_processor(model, repr(str(path)))
    texts: list[str] = [processor.id_to_piece(token) for token in range(processor.get_piece_size())]
    pieces = [sentencepiece_piece(text) for text in texts]
    written = {
        token: text for token, text in enumerate(texts) if processor.is_control(token) or processor.is_unknown(token)
    }
    settings = _Settings(folder, chat_template)
    added: dict[str, int] = {}
    for token, text, special_token in _added_tokens(folder, settings):
        pieces.extend([b""] * (token + 1 - len(pieces)))
        pieces[token] = text.encode()
        if special_token:
            written[token] = text
        elif token >= len(texts):
            added[text] = token
    ids = {text: token for token, text in enumerate(texts)} | {text: token for token, text in written.items()}
    special = settings.special(ids, add_bos=True)
    return SentencePieceTokenizer(
        model,
        vocabulary(pieces, written, special),
        special,
        written={text: token for token, text in written.items()},
        added=added,
        dummy_prefix=processor.encode("a", out_type=str)[0].startswith("▁"),
        source=repr(str(path)),
    )


def _added_tokens(folder: Path, settings: _Settings) -> list[tuple[int, str, bool]]:
    """Tokens beyond the SentencePiece model: id, text, special."""
    found: dict[int, tuple[str, bool]] = {}
    for text, token in _optional(folder / "added_tokens.json").items():
        if isinstance(token, int):
            found[token] = (text, True)
    for key, entry in (settings.tokenizer.get("added_tokens_decoder") or {}).items():
        if key.isdecimal() and isinstance(entry, dict) and isinstance(entry.get("content"), str):
            found[int(key)] = (entry["content"], bool(entry.get("special")))
    return [(token, text, special) for token, (text, special) in sorted(found.items()) if token < 1 << 24]


def _take_prefix_away(content: dict[str, Any]) -> bool:
    """Removes what adds a space before a text; whether there was something."""
    found = False
    for part in _parts(content, "normalizer", "normalizers"):
        if part.get("type") == "Prepend" and part.get("prepend") in ("▁", " "):
            part.update(prepend="")
            found = True
    for part in _parts(content, "pre_tokenizer", "pretokenizers"):
        if part.get("type") == "Metaspace":
            scheme = part.get("prepend_scheme", "always" if part.get("add_prefix_space", True) else "never")
            found = found or scheme != "never"
            part.pop("add_prefix_space", None)
            part["prepend_scheme"] = "never"
        elif part.get("type") == "ByteLevel" and part.get("add_prefix_space"):
            part["add_prefix_space"] = False
            found = True
    return found


def _parts(content: dict[str, Any], key: str, inner: str) -> list[dict[str, Any]]:
    """The component under `key`, or the components of the sequence that it is."""
    part = content.get(key)
    if not isinstance(part, dict):
        return []
    return [entry for entry in part.get(inner, []) if isinstance(entry, dict)] or [part]


def _mentions(part: Any, *kinds: str) -> bool:
    if not isinstance(part, dict):
        return False
    return part.get("type") in kinds or any(_mentions(inner, *kinds) for inner in part.get("decoders", []))


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _token_text(value: Any) -> str | None:
    """tokenizer_config.json writes a token as its text or as an object with `content`."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None
