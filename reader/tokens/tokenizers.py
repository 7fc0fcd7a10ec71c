"""Tokenizers of kept libraries: from text to the numbers of tokens.

Imports a library when a tokenizer of its kind is opened. Each worker opens its own.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError

__all__ = ["Tokenizer", "open_tokenizer"]

_BYTES = 256


class Tokenizer(Protocol):
    """Makes tokens of texts.

    Attributes:
        size: how many tokens there are, from 0 on.
        identity: what its tokens depend on: they are the same where this is.
    """

    size: int
    identity: str

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Return the tokens of each text, without special ones. Raises of many types: it cannot."""

    def token(self, name: str) -> int | None:
        """Return the number of a token by its name; None: it has none of that name."""


def open_tokenizer(name: str) -> Tokenizer:
    """Return a tokenizer.

    Args:
        name: "bytes" for the bytes of UTF-8; a tokenizer.json of Hugging Face, or a folder with
            one; a .model of SentencePiece; or the name of an encoding of tiktoken.

    Raises:
        ConfigError: there is none of that name, or the library is missing.
    """
    if name == "bytes":
        return _Bytes()
    path = Path(name).expanduser()
    if path.is_dir():
        path = path / "tokenizer.json"
    if path.suffix in (".json", ".model"):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"the tokenizer '{path}' cannot be read: {error}. Pass a tokenizer.json of Hugging"
                " Face, a .model of SentencePiece, the name of an encoding of tiktoken, or 'bytes'"
            ) from error
        kind = _HuggingFace if path.suffix == ".json" else _SentencePiece
        try:
            return kind(path, hashlib.sha256(content).hexdigest())
        except ConfigError:
            raise
        except Exception as error:  # of many types
            raise ConfigError(
                f"the tokenizer '{path}' is damaged, or of another kind: {error}"
            ) from (error)
    return _Tiktoken(name)


def _library(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs the library {name}, which cannot be imported: {error}. Run: pip install"
            f" {name}"
        ) from error


class _Bytes:
    """The bytes of a text, in UTF-8."""

    size, identity = _BYTES, "bytes"

    def encode(self, texts: Sequence[str]) -> list[npt.NDArray[np.uint8]]:
        """See Tokenizer."""
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]

    def token(self, name: str) -> int | None:  # noqa: ARG002
        """See Tokenizer."""
        return None


class _HuggingFace:
    """A tokenizer.json of Hugging Face's `tokenizers`."""

    def __init__(self, path: Path, digest: str) -> None:
        # its threads would be those of all workers
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        library = _library("tokenizers", f"'{path}'")
        self._tokenizer = library.Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        numbers = self._tokenizer.get_vocab(with_added_tokens=True).values()
        self.size = max(numbers, default=-1) + 1
        self.identity = f"tokenizers {digest}"

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """See Tokenizer."""
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [each.ids for each in found]

    def token(self, name: str) -> int | None:
        """See Tokenizer."""
        found: int | None = self._tokenizer.token_to_id(name)
        return found


class _SentencePiece:
    """A .model of SentencePiece."""

    def __init__(self, path: Path, digest: str) -> None:
        library = _library("sentencepiece", f"'{path}'")
        self._tokenizer = library.SentencePieceProcessor(model_file=str(path))
        self.size = int(self._tokenizer.vocab_size())
        self.identity = f"sentencepiece {digest}"

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """See Tokenizer."""
        found: list[Any] = self._tokenizer.encode(list(texts), num_threads=1)
        return found

    def token(self, name: str) -> int | None:
        """See Tokenizer."""
        found = int(self._tokenizer.piece_to_id(name))
        return None if found == self._tokenizer.unk_id() else found


class _Tiktoken:
    """An encoding of tiktoken."""

    def __init__(self, name: str) -> None:
        library = _library("tiktoken", f"the tokenizer {name!r}")
        known = library.list_encoding_names()
        if name not in known:
            raise ConfigError(
                f"there is no tokenizer {name!r}: pass a tokenizer.json of Hugging Face, a .model"
                f" of SentencePiece, 'bytes', or an encoding of tiktoken: {', '.join(known)}"
            )
        try:
            self._tokenizer = library.get_encoding(name)
        except Exception as error:  # of requests, which fetches it
            raise ConfigError(
                f"the encoding {name!r} of tiktoken cannot be fetched: {error}. Set"
                " TIKTOKEN_CACHE_DIR to a folder that has it"
            ) from error
        self.size = int(self._tokenizer.n_vocab)
        self.identity = f"tiktoken {name}"

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """See Tokenizer."""
        return [self._tokenizer.encode_ordinary(text) for text in texts]

    def token(self, name: str) -> int | None:
        """See Tokenizer."""
        try:
            return int(self._tokenizer.encode_single_token(name))
        except KeyError:
            return None
