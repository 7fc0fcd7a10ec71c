"""`python -m reader tokens`: the files that it writes, and what it refuses."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import Documents, TokenWindows, sample_rng  # noqa: F401  # the core is there
from reader.__main__ import main
from reader.tokens import write_tokens as module
from tests.token_files import lists_of

TEXTS = ["abc", "", "wörter", "x" * 50, "\n", "ende"]
END = 256


def lines(path: Path, texts: Any = TEXTS, field: str = "text") -> Path:
    content = "".join(json.dumps({field: text, "id": 1}) + "\n" for text in texts).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def tokens_of(texts: Any = TEXTS) -> list[list[int]]:
    return [[*text.encode(), END] for text in texts]


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    code = main(["tokens", *map(str, arguments)])
    found = capsys.readouterr()
    return code, found.out, found.err


def written(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    options = ("--tokenizer", "bytes", "--document-end", END, "--num-workers", 0)
    code, out, err = run(capsys, *arguments, *options)
    assert (code, err) == (0, "")
    return out


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.suffix != ".jsonl"}


# ---- what is written -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_texts_become_documents_of_a_megatron_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pytest.importorskip("pyarrow").table({"text": TEXTS}), path)
    else:
        lines(path)
    out = written(capsys, path, "--output", tmp_path / "corpus")
    assert out == f"6 documents, 71 tokens: {tmp_path}/corpus\n"
    documents = Documents(tmp_path / "corpus.bin")
    assert lists_of(documents) == tokens_of()
    assert documents.fields["tokens"] == np.uint16
    said = json.loads((tmp_path / "corpus.tokens.json").read_text())
    assert (said["documents"], said["tokens"], said["arguments"]["tokenizer"]) == (6, 71, "bytes")
    assert not (tmp_path / "corpus.draft").exists()


def test_flat_files_and_shards_of_llm_c_are_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = lines(tmp_path / "a.jsonl")
    written(capsys, path, "--output", tmp_path / "flat.bin", "--format", "flat")
    assert lists_of(Documents(tmp_path / "flat.bin", document_end=END)) == tokens_of()
    written(capsys, path, "--output", tmp_path / "x", "--format", "llmc", "--shard-tokens", 20)
    assert sorted(each.name for each in tmp_path.glob("x_*")) == [
        *("x_000000.bin", "x_000001.bin", "x_000002.bin")
    ]
    assert lists_of(Documents(tmp_path / "x_*", document_end=END)) == tokens_of()
    assert len(TokenWindows(tmp_path / "x_000001.bin", 5)) == 10  # 51 tokens: one large document
    wide = ("--output", tmp_path / "y", "--format", "llmc", "--dtype", "uint32")
    written(capsys, path, *wide)
    assert Documents(tmp_path / "y_000000.bin", document_end=END).fields["tokens"] == np.uint32


def test_parts_of_a_megatron_file_are_files_of_their_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = lines(tmp_path / "a.jsonl")
    written(capsys, path, "--output", tmp_path / "x", "--shard-tokens", 12)
    assert len(list(tmp_path.glob("x_*.idx"))) == 4
    assert lists_of(Documents(tmp_path / "x_*.bin")) == tokens_of()


def test_a_text_file_is_a_document(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, text in enumerate(TEXTS):
        (folder / f"{number}.txt").write_text(text)
    written(capsys, folder, "--output", tmp_path / "x")
    assert lists_of(Documents(tmp_path / "x.bin")) == tokens_of()


def test_any_number_of_processes_writes_the_same_bytes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WRITTEN_AT_ONCE", 500)
    path = lines(tmp_path / "a.jsonl", [f"{k} " * (k % 60) for k in range(700)])
    options = ("--tokenizer", "bytes", "--document-begin", END, "--shard-tokens", 20_000)
    for workers in (0, 1, 2, 3):
        folder = tmp_path / f"{workers}"
        folder.mkdir()
        code, _, err = run(
            capsys, path, *options, "--output", folder / "x", "--num-workers", workers
        )
        assert code == 0, err
    assert len(bytes_in(tmp_path / "0")) > 6
    for workers in (1, 2, 3):
        assert bytes_in(tmp_path / f"{workers}") == bytes_in(tmp_path / "0")


def test_a_tokenizer_of_hugging_face_makes_its_tokens(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<end>"])
    texts = [f"some text number {k} with words" for k in range(200)]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.enable_truncation(4)  # which is for training, and not for a corpus
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer.no_truncation()
    path = lines(tmp_path / "a.jsonl", texts)
    for name in (tmp_path / "tokenizer.json", tmp_path):
        output = tmp_path / f"x{len(str(name))}"
        options = ("--tokenizer", name, "--output", output, "--document-end", "<end>")
        code, _, err = run(capsys, path, *options, "--num-workers", 2)
        assert code == 0, err
        wanted = [[*tokenizer.encode(text).ids, tokenizer.token_to_id("<end>")] for text in texts]
        assert lists_of(Documents(output)) == wanted
    code, _, err = run(capsys, path, *options[:-1], "<no>", "--output", tmp_path / "y")
    assert (code, "document_end='<no>' is no token of the tokenizer" in err) == (2, True)


def test_a_model_of_sentencepiece_makes_its_tokens(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    library = pytest.importorskip("sentencepiece")
    texts = [f"some text number {k} with words" for k in range(200)]
    model = tmp_path / "t.model"
    with model.open("wb") as file:
        library.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=file, vocab_size=40, minloglevel=9
        )
    path = lines(tmp_path / "a.jsonl", texts)
    options = ("--tokenizer", model, "--output", tmp_path / "x", "--document-end", "</s>")
    code, _, err = run(capsys, path, *options, "--num-workers", 2)
    assert code == 0, err
    tokenizer = library.SentencePieceProcessor(model_file=str(model))
    wanted = [[*tokenizer.encode(text), tokenizer.eos_id()] for text in texts]
    assert lists_of(Documents(tmp_path / "x")) == wanted
    model.write_bytes(b"no model")
    code, _, err = run(capsys, path, *options)
    assert code == 2
    assert "t.model' is damaged, or of another kind" in err


def test_an_encoding_that_tiktoken_has_not_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("tiktoken")
    path = lines(tmp_path / "a.jsonl")
    code, _, err = run(capsys, path, "--tokenizer", "no-such", "--output", tmp_path / "x")
    assert code == 2
    assert "there is no tokenizer 'no-such': pass a tokenizer.json" in err
    assert "an encoding of tiktoken: " in err
    assert "gpt2" in err


# ---- runs that were ended --------------------------------------------------------------------


def test_a_run_that_dies_at_any_step_goes_on_with_the_same_bytes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WRITTEN_AT_ONCE", 40)
    path = lines(tmp_path / "a.jsonl", [f"{k} " * (k % 9) for k in range(70)])
    options = [path, "--format", "llmc", "--shard-tokens", 300, "--output"]
    (tmp_path / "whole").mkdir()
    written(capsys, *options, tmp_path / "whole" / "x")
    deaths = 0
    for step in range(10_000):
        folder = tmp_path / f"{step}"
        folder.mkdir()
        if dies_at(step, [*options, folder / "x"]):
            deaths += 1
            dies_at(step // 2, [*options, folder / "x"])  # once more, while it goes on
        written(capsys, *options, folder / "x")
        assert bytes_in(folder) == bytes_in(tmp_path / "whole")
        if deaths <= step:
            break
    assert deaths > 30


def dies_at(step: int, arguments: list[Any]) -> bool:
    """Run the command in a child that ends at a step; return whether it had so many."""
    pid = os.fork()
    if not pid:
        left = [step]

        def watch(event: str, given: tuple[Any, ...]) -> None:
            steps = ("open", "os.truncate", "os.rename", "os.remove", "os.rmdir", "os.mkdir")
            if event in steps and not (event == "open" and str(given[1]) in ("r", "rb")):
                left[0] -= 1
                if left[0] < 0:
                    os._exit(9)

        code = 1
        try:
            sys.addaudithook(watch)
            options = ("--tokenizer", "bytes", "--document-end", END, "--num-workers", 0)
            code = main(["tokens", *map(str, [*arguments, *options])])
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, 9)
    return status == 9


def test_a_finished_output_is_left_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = lines(tmp_path / "a.jsonl")
    first = written(capsys, path, "--output", tmp_path / "x")
    stamp = (tmp_path / "x.bin").stat()
    assert written(capsys, path, "--output", tmp_path / "x") == first
    assert (tmp_path / "x.bin").stat() == stamp


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("--field", "id"), "field"),
        (("--document-begin", "7"), "document_begin, marks"),
        (("--format", "flat"), "format"),
        ((), "files"),
    ],
)
def test_other_arguments_do_not_go_on_with_an_output(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    change: Any,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = lines(tmp_path / "a.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr(module._Draft, "finish", lambda draft: sys.exit(draft._write()))
        with pytest.raises(SystemExit):
            written(capsys, path, "--output", tmp_path / "begun")
    written(capsys, path, "--output", tmp_path / "done")
    if what == "files":
        lines(path, ["other", *TEXTS[1:]])
    for name in ("begun", "done"):
        options = ("--tokenizer", "bytes", "--document-end", END, "--num-workers", 0, *change)
        code, _, err = run(capsys, path, *options, "--output", tmp_path / name)
        assert code == 2
        assert f"was begun or written with other {what}: pass the same" in err
    assert not (tmp_path / "done.draft").exists()


def test_one_process_writes_at_a_time(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.1)
    path = lines(tmp_path / "a.jsonl")
    (tmp_path / "x.draft").mkdir()
    fd = os.open(tmp_path / "x.draft", os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        code, _, err = run(capsys, path, "--tokenizer", "bytes", "--output", tmp_path / "x")
    finally:
        os.close(fd)
    assert code == 2
    assert f"another process writes to '{tmp_path}/x': process {os.getpid()}" in err


# ---- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"text": "a"}\n{"body": "b"}\n', "a.jsonl', at 14, lacks the field 'text': it has body"),
        ('{"text": "a"}\n{"text": 5}\n', "document 1 ('{path}', sample 1) is 5 (int)"),
        ('{"text": "a"}\n{"text": null}\n', "document 1 ('{path}', sample 1) is None"),
        ('{"text": "a"}\n{"text": "\\ud800"}\n', "document 1 ('{path}', sample 1) cannot become"),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_no_text_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, message: str, workers: int
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    options = ("--tokenizer", "bytes", "--output", tmp_path / "x", "--num-workers", workers)
    code, out, err = run(capsys, path, *options)
    assert (code, out) == (2, "")
    assert message.format(path=path) in err


def test_a_mistaken_field_is_mended_by_another_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = lines(tmp_path / "a.jsonl")
    options = (path, "--tokenizer", "bytes", "--num-workers", 0, "--output", tmp_path / "x.idx")
    code, _, err = run(capsys, *options, "--field", "txt")
    assert code == 2
    assert "lacks the field 'txt'" in err
    code, _, _ = run(capsys, *options)
    assert code == 0
    assert sorted(each.name for each in tmp_path.glob("x*")) == ["x.bin", "x.idx", "x.tokens.json"]


def test_a_text_that_is_named_twice_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    code, _, err = run(capsys, path, path, "--tokenizer", "bytes", "--output", tmp_path / "x")
    assert code == 2
    assert "a.txt' twice: its samples would come twice" in err


def test_a_file_that_is_no_text_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe")
    options = ("--tokenizer", "bytes", "--output", tmp_path / "x", "--num-workers", 0)
    code, _, err = run(capsys, tmp_path / "a.txt", *options)
    assert code == 2
    assert "a.txt') is no text in UTF-8" in err
    lines(tmp_path / "b.jsonl")
    code, _, err = run(capsys, tmp_path / "a.txt", tmp_path / "b.jsonl", *options)
    assert "a.txt' is a document, and " in err
    assert "b.jsonl' has many: pass those of one kind" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tokenizer", "no.json"), "the tokenizer 'no.json' cannot be read"),
        (("--format", "parquet"), "format must be one of megatron, flat, llmc, got 'parquet'"),
        (("--format", "flat"), "do not say where documents are: pass document_end"),
        (("--dtype", "uint32"), "dtype must be one of uint8, int8, int16, int32"),
        (("--dtype", "int8"), "the tokenizer has tokens up to 255, and int8 holds 127 at most"),
        (("--dtype", "uint8", "--document-end", "256"), "has tokens up to 256, and uint8 holds"),
        (("--document-end", "<end>"), "document_end='<end>' is no token of the tokenizer"),
        (("--shard-tokens", "0"), "shard_tokens must be"),
        (("--num-workers", "-1"), "num_workers must be"),
        (("--document-end", "9" * 20), "is no token of the tokenizer: pass its number"),
        (("--dtype", "integers"), "dtype must be one of uint8, int8, int16, int32"),
        (("--output", "{folder}/no/a\0b"), "output begins the names of the files"),
        (("--output", ""), "output begins the names of the files"),
        (("--output", "."), "output begins the names of the files"),
        (("--output", "{folder}/x/"), "pass a path such as 'folder/corpus'"),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: Any, message: str
) -> None:
    path = lines(tmp_path / "a.jsonl")
    before = ("--tokenizer", "bytes", "--output", tmp_path / "x")
    code, out, err = run(capsys, path, *before, *(o.format(folder=tmp_path) for o in options))
    assert (code, out) == (2, "")
    assert message in err
    assert not list(tmp_path.glob("x*"))


def test_what_is_in_the_place_of_the_output_stays(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = lines(tmp_path / "a.jsonl")
    (tmp_path / "x.idx").write_text("mine")
    code, _, err = run(capsys, path, "--tokenizer", "bytes", "--output", tmp_path / "x")
    assert code == 2
    assert "x.idx' is there already: remove it, or pass another output" in err
    assert (tmp_path / "x.idx").read_text() == "mine"
    assert not list(tmp_path.glob("x.draft"))


@pytest.mark.parametrize("library", ["tokenizers", "sentencepiece", "tiktoken"])
def test_a_library_that_is_missing_is_named(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    library: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    path = lines(tmp_path / "a.jsonl")
    (tmp_path / "t.json").write_text("{}")
    (tmp_path / "t.model").write_text("")
    name = {"tokenizers": "t.json", "sentencepiece": "t.model"}.get(library)
    tokenizer = "gpt2" if name is None else tmp_path / name
    code, _, err = run(capsys, path, "--tokenizer", tokenizer, "--output", tmp_path / "x")
    assert code == 2
    assert f"needs the library {library}, which cannot be imported" in err
    assert f"pip install {library}" in err
