"""Write files of tokens from texts, in parallel and in order; go on where a killed run stopped.

Imports the loader, whose workers make the tokens, and the tokenizers. What is written lies in a
folder beside the output, and gets its names when all of it is there. Tokens are written before the
lengths of their documents, so that the lengths say what is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader.checks import as_int, refuse_url
from reader.data.dataset import Dataset
from reader.errors import ConfigError, DatasetError, got
from reader.files import locked_folder, new_file
from reader.loader import DataLoader
from reader.shards.index import refuse_twice
from reader.shards.shards import Shards
from reader.shards.write_shards import with_bar
from reader.stores.files import Files, StoredFile
from reader.stores.paths import files_in, named
from reader.stores.urls import is_url
from reader.tokens.megatron_index import TYPES, index_bytes
from reader.tokens.tokenizers import Tokenizer, open_tokenizer

__all__ = ["FORMATS", "Options", "write_tokens"]

Array = npt.NDArray[Any]
FORMATS = ("megatron", "flat", "llmc")
_TEXTS = (".txt", ".md", ".text")
_SHARD_TOKENS = 100_000_000  # of a shard of llm.c
_LLMC = {2: (20240520, 1), 4: (20240801, 7)}  # magic number and version, by the bytes of a token
_LLMC_INTS = 256
_MOST_LLMC = (1 << 31) - 1  # tokens of a shard: their number is an int32
_AT_ONCE = 32  # texts of a task of a worker
_WRITTEN_AT_ONCE = 1 << 22  # tokens
_MOST_WAITING = 1 << 16  # documents
_PATIENCE_S = 10.0  # workers of a run that was killed hold its lock until they end


class Options(NamedTuple):
    """What is written.

    Attributes:
        tokenizer: see `open_tokenizer`.
        format: "megatron", "flat" or "llmc".
        field: of a sample, with its text.
        document_end: the token behind each document, by its number or name; None: there is none.
        document_begin: the token before each document.
        dtype: of the tokens; None: the smallest usual one that holds all.
        shard_tokens: how many tokens a file has at most, unless a document has more; None: of
            "llmc" 100 million, else one file has all.
    """

    tokenizer: str
    format: str = "megatron"
    field: str = "text"
    document_end: str | None = None
    document_begin: str | None = None
    dtype: str | None = None
    shard_tokens: int | None = None


class _Texts(Dataset[str]):
    """The texts of files: each a document, or of shards each sample.

    Args:
        paths: of the files, or patterns.
        field: of a sample, with its text.

    Raises:
        ConfigError: there are none.
    """

    def __init__(self, paths: Sequence[str], field: str) -> None:
        self._field = field
        found = [path for part in paths if not is_url(part) for path in named(part)]
        inner = [files_in(path) if os.path.isdir(path) else [path] for path in found]  # noqa: PTH112
        files = [path for each in inner for path in each]
        plain = [path for path in files if path.endswith(_TEXTS)]
        if plain and (len(plain) < len(files) or len(found) < len(paths)):
            other = next(path for path in (*files, *paths) if path not in plain)
            raise ConfigError(
                f"'{plain[0]}' is a document, and '{other}' has many: pass those of one kind"
            )
        refuse_twice(plain)
        self._shards = None if plain else Shards(list(paths), fields={field: None})
        self.files = Files().found(plain) if plain else self._shards.files  # type: ignore[union-attr]

    def __len__(self) -> int:
        return len(self.files) if self._shards is None else len(self._shards)

    def __getitem__(self, index: int, /) -> str:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[str]:
        """Return many texts. DatasetError: one is none; it is named."""
        if self._shards is None:
            found: list[Any] = [self._content(self.files[index]) for index in indices]
        else:
            found = [sample[self._field] for sample in self._shards.__getitems__(indices)]
        return [self._text(value, index) for value, index in zip(found, indices, strict=True)]

    def _content(self, file: StoredFile) -> bytes:
        return Files().stored(file).read(0, file.nbytes)

    def _text(self, value: Any, index: int) -> str:
        if isinstance(value, (bytes, memoryview)):
            try:
                return bytes(value).decode()
            except UnicodeDecodeError as error:
                raise DatasetError(f"{self.where(index)} is no text in UTF-8: {error}") from error
        if not isinstance(value, str):
            raise DatasetError(f"the field {self._field!r} of {self.where(index)} is {got(value)}")
        return value

    def where(self, index: int) -> str:
        """Return which document that is, in words."""
        if self._shards is None:
            return f"document {index:,} ('{self.files[index].path}')"
        path, _, _, position = self._shards.origin(index)
        return f"document {index:,} ('{path}', sample {position:,})"


class _Encoded(Dataset[Array]):
    """The tokens of texts, with those that begin and end a document."""

    def __init__(self, texts: _Texts, name: str, dtype: np.dtype[Any], marks: Any) -> None:
        self._texts, self._name, self._dtype, self._marks = texts, name, dtype, marks
        self._tokenizer: Tokenizer | None = None

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int, /) -> Array:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Array]:
        """Return the tokens of many texts. DatasetError: one has none; it is named."""
        if self._tokenizer is None:
            self._tokenizer = open_tokenizer(self._name)
        texts = self._texts.__getitems__(indices)
        try:
            found = self._tokenizer.encode(texts)
        except Exception:  # of many types: one by one, to know which
            found = [self._one(text, index) for text, index in zip(texts, indices, strict=True)]
        return [self._array(each, index) for each, index in zip(found, indices, strict=True)]

    def _one(self, text: str, index: int) -> Any:
        try:
            return self._tokenizer.encode([text])[0]  # type: ignore[union-attr]
        except Exception as error:  # of many types
            where = self._texts.where(index)
            raise DatasetError(f"{where} cannot become tokens: {error}") from error

    def _array(self, tokens: Any, index: int) -> Array:
        begin, end = self._marks
        parts = [begin, np.asarray(tokens, np.int64), end]
        found = np.concatenate([each for each in parts if each is not None])
        limits = np.iinfo(self._dtype)
        if found.size and not int(limits.min) <= int(found.min()) <= int(found.max()) <= limits.max:
            raise DatasetError(
                f"{self._texts.where(index)} has the token {int(found.max())}, which {self._dtype}"
                " does not hold: pass --dtype int32 or uint32"
            )
        return found.astype(self._dtype)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the tokenizer out: each worker opens its own."""
        return {**self.__dict__, "_tokenizer": None}


def _joined(documents: list[Array]) -> tuple[Array, Array]:
    lengths = np.array(list(map(len, documents)), np.int64)
    return np.concatenate(documents), lengths


def write_tokens(
    paths: Sequence[str],
    output: str,
    options: Options,
    num_workers: int = 0,
    progress: bool = False,
) -> tuple[int, int]:
    """Write the tokens of texts; return how many documents and tokens there are.

    A call that was ended, by SIGKILL too, is repeated with the same arguments: it goes on, and the
    bytes are the same, for any number of workers.

    Args:
        paths: of texts, or of shards with a field of text.
        output: begins the names of the files: "corpus" of "corpus.bin" and "corpus.idx".
        options: what is written.
        num_workers: how many processes make tokens.
        progress: whether to show a bar, by tqdm.

    Raises:
        ConfigError: an argument is invalid, the output is there already, or cannot be written.
        DatasetError: a text is none, or cannot become tokens; it is named.
    """
    workers = as_int("num_workers", num_workers, low=0, remedy="0 makes tokens in this process.")
    refuse_url("output", output)
    if "\0" in output or os.path.basename(output) in ("", ".", ".."):  # noqa: PTH119
        raise ConfigError(
            f"output begins the names of the files, got {got(output)}: pass a path such as"
            " 'folder/corpus'"
        )
    output = os.path.abspath(os.path.expanduser(output))  # noqa: PTH100, PTH111
    output = output.removesuffix(".bin").removesuffix(".idx")
    tokenizer = open_tokenizer(options.tokenizer)
    marks = [
        _mark(tokenizer, name, getattr(options, name))
        for name in ("document_begin", "document_end")
    ]
    dtype = _dtype_of(tokenizer, options, [int(each[0]) for each in marks if each is not None])
    texts = _Texts(paths, options.field)
    said = {
        **options._asdict(),
        "tokenizer": tokenizer.identity,
        "dtype": dtype.name,
        "marks": [None if each is None else int(each[0]) for each in marks],
        "files": [list(file) for file in texts.files],
        "documents": len(texts),
    }
    draft = _Draft(output, options, dtype, said)
    with draft.only_writer():
        if draft.is_finished():
            return draft.counts()
        done = draft.resume()
        encoded = _Encoded(texts, options.tokenizer, dtype, marks)
        with DataLoader(
            encoded,
            batch_size=_AT_ONCE,
            sampler=range(done, len(texts)),
            collate_fn=_joined,
            num_workers=workers,
        ) as loader:
            documents = _documents(loader)
            if progress:
                documents = with_bar(documents, done, len(texts), " documents")
            for document in documents:
                draft.add(document)
        return draft.finish()


def _documents(loader: Any) -> Iterator[Array]:
    """Yield the tokens of each document."""
    for tokens, lengths in loader:
        ends = np.cumsum(lengths).tolist()
        for begin, end in pairwise([0, *ends]):
            yield tokens[begin:end]


def _mark(tokenizer: Tokenizer, option: str, name: str | None) -> Array | None:
    """Return a token as an array of one; None: there is none. ConfigError: it is unknown."""
    if name is None:
        return None
    token = int(name) if name.isdecimal() else tokenizer.token(name)
    if token is None or token >= 1 << 63:
        raise ConfigError(f"{option}={name!r} is no token of the tokenizer: pass its number")
    return np.array([token], np.int64)


def _dtype_of(tokenizer: Tokenizer, options: Options, marks: list[int]) -> np.dtype[Any]:
    """Return the type of the tokens. ConfigError: it does not hold all, or there is none."""
    if options.format not in FORMATS:
        raise ConfigError(f"format must be one of {', '.join(FORMATS)}, got {options.format!r}")
    if options.format != "megatron" and not marks:
        raise ConfigError(
            f"files of the format {options.format!r} do not say where documents are: pass"
            " document_end, the token behind each, such as <|endoftext|>, or document_begin"
        )
    most = max([tokenizer.size - 1, *marks])
    is_small = most < 1 << 16
    large = "int32" if options.format == "megatron" else "uint32"
    holds = list(TYPES.values())
    if options.format == "llmc":
        holds = [np.dtype("uint16"), np.dtype("uint32")]
    elif options.format == "flat":
        holds.append(np.dtype("uint32"))
    name = options.dtype or ("uint16" if is_small else large)
    found = next((each for each in holds if each.name == name), None)
    if found is None:
        raise ConfigError(
            f"dtype must be one of {', '.join(each.name for each in holds)} for"
            f" {options.format!r}, got {options.dtype!r}"
        )
    if most > np.iinfo(found).max:
        raise ConfigError(
            f"the tokenizer has tokens up to {most:,}, and {found} holds {np.iinfo(found).max:,} at"
            " most: leave dtype out, or pass a wider one"
        )
    return found


class _Draft:
    """What is written of an output, in a folder beside it.

    It has the arguments, the tokens of each part, and the length of each document. A part is one
    file of the output.

    Args:
        output: begins the names of the files.
        options: what is written.
        dtype: of the tokens.
        said: all that the bytes depend on.
    """

    def __init__(
        self, output: str, options: Options, dtype: np.dtype[Any], said: dict[str, Any]
    ) -> None:
        self._output, self._dtype, self._said = output, dtype, json.loads(json.dumps(said))
        self._format = options.format
        self._is_cut = options.shard_tokens is not None or options.format == "llmc"
        most = _MOST_LLMC if options.format == "llmc" else 1 << 62
        default = _SHARD_TOKENS if self._is_cut else most
        self._most = as_int(
            "shard_tokens",
            default if options.shard_tokens is None else options.shard_tokens,
            low=1,
            high=most,
            remedy="It is how many tokens a file has at most.",
        )
        self._folder = Path(f"{output}.draft")
        self._arguments, self._lengths = self._folder / "arguments.json", self._folder / "lengths"
        self._manifest = Path(f"{output}.tokens.json")
        self._part = 0  # the number of the part that is written
        self._room = self._in_part = 0  # how many tokens and documents it has
        self._waiting: list[Array] = []  # its documents that are not written yet
        self._count = 0  # their tokens

    @contextlib.contextmanager
    def only_writer(self) -> Iterator[None]:
        """Let one process at a time write. ConfigError: another one does, or nobody can."""
        with contextlib.ExitStack() as stack:
            while True:
                with _writing(self._folder):
                    try:
                        fd = stack.enter_context(locked_folder(self._folder, _PATIENCE_S))
                    except TimeoutError as error:
                        raise ConfigError(
                            f"another process writes to '{self._output}': {error}. End that one, or"
                            " pass another output"
                        ) from error
                with contextlib.suppress(FileNotFoundError):  # the one that wrote has finished
                    if os.path.samestat(os.fstat(fd), self._folder.stat()):
                        break
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # nothing was begun
                    self._folder.rmdir()

    def is_finished(self) -> bool:
        """Whether an earlier call came to its end.

        Raises:
            ConfigError: it had other arguments, or something else is at the output's place.
        """
        found = _json(self._manifest)
        if found is not None:
            self._compare(found.get("arguments"))
            shutil.rmtree(self._folder, ignore_errors=True)
            return True
        if not self._arguments.exists():
            there = [path for path in self._outputs(0) if path.exists()]
            if there:
                raise ConfigError(
                    f"'{there[0]}' is there already: remove it, or pass another output"
                )
        return False

    def _compare(self, said: Any) -> None:
        if said == self._said:
            return
        differ = "arguments"
        if isinstance(said, dict):
            differ = ", ".join(
                sorted(name for name in self._said if said.get(name) != self._said[name])
            )
        raise ConfigError(
            f"'{self._output}' was begun or written with other {differ}: pass the same, or another"
            f" output, or remove '{self._folder}' and what begins with '{self._output}'"
        )

    def counts(self) -> tuple[int, int]:
        """Return how many documents and tokens a finished output has."""
        found = _json(self._manifest) or {}
        return int(found["documents"]), int(found["tokens"])

    def resume(self) -> int:
        """Return how many documents are whole, and cut off what is written behind them."""
        with _writing(self._folder):
            found, lengths = _json(self._arguments), self._all_lengths()
            if found is None or (found != self._said and not len(lengths)):  # nothing is whole
                self._lengths.touch()
                self._write_whole(self._arguments, json.dumps(self._said).encode())
            else:
                self._compare(found)
            os.truncate(self._lengths, lengths.nbytes)
            parts = [
                (end - begin, int(lengths[begin:end].sum())) for begin, end in self._parts(lengths)
            ]
            self._part = max(0, len(parts) - 1)
            self._in_part, self._room = parts[-1] if parts else (0, 0)
            for path in self._folder.glob("tokens-*"):
                if path > self._tokens(self._part):
                    path.unlink()
            tokens = self._tokens(self._part)
            if tokens.exists():  # else it has its name already
                os.truncate(tokens, self._room * self._dtype.itemsize)
            return len(lengths)

    def _all_lengths(self) -> Array:
        content = self._lengths.read_bytes() if self._lengths.exists() else b""
        return np.frombuffer(content[: len(content) // 8 * 8], np.int64)

    def _parts(self, lengths: Array) -> Iterator[tuple[int, int]]:
        """Yield the first document and the end of each part."""
        ends, begin, before = np.cumsum(lengths), 0, 0
        while begin < len(lengths):
            end = max(begin + 1, int(np.searchsorted(ends, before + self._most, "right")))
            yield begin, end
            begin, before = end, int(ends[end - 1])

    def add(self, tokens: Array) -> None:
        """Write a document, or keep it to be written with others."""
        length = len(tokens)
        if self._in_part and self._room + length > self._most:
            self._write()
            self._part, self._room, self._in_part = self._part + 1, 0, 0
        self._waiting.append(tokens.copy())  # the batch's memory is given back
        self._room += length
        self._in_part += 1
        self._count += length
        if self._count >= _WRITTEN_AT_ONCE or len(self._waiting) >= _MOST_WAITING:
            self._write()

    def _write(self) -> None:
        """Write what waits: first the tokens, then how long their documents are."""
        if not self._waiting:
            return
        with _writing(self._folder):
            for path, content in (
                (self._tokens(self._part), np.concatenate(self._waiting)),
                (self._lengths, np.array(list(map(len, self._waiting)), np.int64)),
            ):
                with path.open("ab") as file:
                    file.write(content.tobytes())
                    file.flush()
                    os.fsync(file.fileno())
        self._waiting, self._count = [], 0

    def finish(self) -> tuple[int, int]:
        """Give what is written its names; return how many documents and tokens there are."""
        self._write()
        lengths = self._all_lengths()
        with _writing(self._folder):
            for number, (begin, end) in enumerate(self._parts(lengths)):
                part = lengths[begin:end]
                target, index = self._outputs(number)
                if self._format == "megatron":
                    self._write_whole(index, index_bytes(part, self._dtype))
                tokens = self._tokens(number)
                if tokens.exists():
                    self._name(tokens, target, int(part.sum()))
                elif part.any() and not target.exists():
                    raise ConfigError(
                        f"'{tokens}' has gone: remove '{self._folder}', and write all anew"
                    )
            counts = {"documents": len(lengths), "tokens": int(lengths.sum())}
            manifest = json.dumps({**counts, "arguments": self._said}, indent=1)
            self._write_whole(self._manifest, manifest.encode())
            shutil.rmtree(self._folder)
        return counts["documents"], counts["tokens"]

    def _write_whole(self, target: Path, content: bytes) -> None:
        """Write a file in one step, by a draft in the folder, which goes if this process ends."""
        draft = self._folder / f"{target.name}.whole"
        with new_file(draft) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)

    def _name(self, tokens: Path, target: Path, count: int) -> None:
        """Give the tokens of a part their name; of llm.c a header comes first."""
        if self._format == "llmc":
            header = np.zeros(_LLMC_INTS, "<i4")
            header[:2] = _LLMC[self._dtype.itemsize]
            header[2] = count
            whole = tokens.with_suffix(".whole")
            with whole.open("wb") as file, tokens.open("rb") as source:
                file.write(header.tobytes())
                shutil.copyfileobj(source, file, 1 << 22)
                file.flush()
                os.fsync(file.fileno())
            whole.replace(target)
            tokens.unlink()
        else:
            tokens.replace(target)

    def _tokens(self, number: int) -> Path:
        return self._folder / f"tokens-{number:06d}"

    def _outputs(self, number: int) -> tuple[Path, Path]:
        """Return the paths of a part and of its index."""
        name = f"{self._output}_{number:06d}" if self._is_cut else self._output
        return Path(f"{name}.bin"), Path(f"{name}.idx")


def _json(path: Path) -> Any:
    """Return what a file holds; None: there is none. ConfigError: it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"'{path}' is damaged: {error}. Remove it, or pass another output") from (
            error
        )


@contextlib.contextmanager
def _writing(place: Path) -> Iterator[None]:
    """Raise ConfigError where the system refuses to write."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"'{place}' cannot be written: {error}. Make room on the disk, or let this user write"
            " there; then repeat the call: it goes on"
        ) from error
