"""RecordIO: records are read as written, also concurrently, and damage is named."""

from __future__ import annotations

import multiprocessing
import pickle
import random
import struct
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import ConfigError, DataLoader, DatasetError, RecordIO, RecordWriter

MAGIC = struct.pack("<I", 0xCED7230A)
COUNT = 3000


def write(folder: Path, records: list[bytes]) -> Path:
    path = folder / "some.rec"
    with RecordWriter(path) as file:
        for record in records:
            file.write(record)
    return path


def content(number: int) -> bytes:
    return random.Random(number).randbytes(number % 700) + MAGIC * (number % 3)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("many"), [content(number) for number in range(COUNT)])


def test_bytes_of_the_format(tmp_path: Path) -> None:
    path = write(tmp_path, [b"abcde", b"1234" + MAGIC + b"5678" + MAGIC, b""])
    parts = [(0, b"abcde\0\0\0", 5), (1, b"1234", 4), (2, b"5678", 4), (3, b"", 0), (0, b"", 0)]
    wanted = [MAGIC + struct.pack("<I", flag << 29 | size) + data for flag, data, size in parts]
    assert path.read_bytes() == b"".join(wanted)
    assert path.with_suffix(".idx").read_text() == "0\t0\n1\t16\n2\t48\n"


@given(
    st.lists(
        st.lists(st.sampled_from([MAGIC, b"a", b"bcd", MAGIC[:2], bytes(7)]), max_size=8).map(
            b"".join
        ),
        max_size=6,
    )
)
def test_any_bytes_are_read_as_they_were_written(records: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), records)
        assert list(RecordIO(path)) == records
        path.with_suffix(".idx").unlink()
        assert list(RecordIO(path)) == records
        assert path.with_suffix(".idx").exists() or not records


def test_records_are_found_by_position_and_by_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.rec"
    with RecordWriter(path, tmp_path / "other.idx") as file:
        assert [file.write(b"a", key=7), file.write(b"b"), file.write(b"c", key=3)] == [7, 8, 3]
        with pytest.raises(ConfigError, match="have the key 8"):
            file.write(b"d", key=8)
    records = RecordIO(path, tmp_path / "other.idx")
    assert (records.keys, len(records), records[-1]) == ([7, 8, 3], 3, b"c")
    assert [records.read(key) for key in (3, 7, 8)] == [b"c", b"a", b"b"]
    with pytest.raises(KeyError):
        records.read(0)
    for wrong in 3, -4, "a":
        with pytest.raises(IndexError, match=r"an int in \[-3, 3\), as .* has 3 records"):
            records[wrong]  # type: ignore[index]


def wrong_in(records: RecordIO, seed: int) -> int:
    order = random.Random(seed).sample(range(COUNT), COUNT)
    return sum(records[number] != content(number) for number in order)


def test_four_threads_read_the_same_reader(many: Path) -> None:
    records = RecordIO(many)
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(wrong_in, [records] * 4, range(4))) == 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_four_processes_read_the_same_reader(many: Path, method: str) -> None:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(4, context) as pool:
        assert sum(pool.map(wrong_in, [RecordIO(many)] * 4, range(4))) == 0


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_loader_reads_records_in_its_workers(many: Path, kind: Any) -> None:
    with DataLoader(
        RecordIO(many), batch_size=64, shuffle=True, seed=1, num_workers=2, worker_type=kind
    ) as loader:
        found = [record for batch in loader for record in batch]
    assert sorted(found) == sorted(content(number) for number in range(COUNT))


def test_reader_is_pickled_without_its_file(many: Path) -> None:
    records = RecordIO(many)
    again = pickle.loads(pickle.dumps(records))
    records.close()
    records.close()
    assert again[17] == content(17)


def read_all(path: Path) -> tuple[list[bytes], str]:
    """Return the records, and the error of the first damaged one."""
    found: list[bytes] = []
    try:
        found.extend(RecordIO(path))
    except DatasetError as error:
        return found, str(error)
    return found, ""


def test_damage_at_any_byte_is_reported_or_gives_other_bytes(tmp_path: Path) -> None:
    whole = [b"abcdefg", b"1234" + MAGIC + b"56", b"last"]
    path = write(tmp_path, whole)
    right, index = path.read_bytes(), path.with_suffix(".idx")
    told = 0
    for at in range(len(right)):
        for value in 0x00, 0xFF, right[at] ^ 0x20:
            path.write_bytes(right[:at] + bytes([value]) + right[at + 1 :])
            for is_indexed in True, False:
                if not is_indexed:
                    index.rename(tmp_path / "kept.idx")
                found, said = read_all(path)
                wrong = sum(each != wanted for each, wanted in zip(found, whole, strict=False))
                assert wrong <= 1
                if said:
                    told += 1
                    assert "some.rec" in said
                    assert "at offset" in said
                if not is_indexed:
                    index.unlink(missing_ok=True)
                    (tmp_path / "kept.idx").rename(index)
    assert told > 100


@pytest.mark.parametrize("length", range(0, 60, 3))
def test_cut_off_file_is_reported(tmp_path: Path, length: int) -> None:
    path = write(tmp_path, [b"a" * 30, b"b" * 30])
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises((DatasetError, ConfigError), match=r"the file ends at|the records\s+have"):
        list(RecordIO(path))


def test_length_beyond_the_file_allocates_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, [b"abc"])
    path.write_bytes(MAGIC + struct.pack("<I", (1 << 29) - 1) + b"abc\0")
    with pytest.raises(DatasetError, match="has 536870911 bytes, and the file ends at 12"):
        RecordIO(path)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0\t0\nmoon\n", r"line 2 of the index .*'moon', and not a key and an offset"),
        ("0\t0\n1\t4000\n", r"line 2 of the index .* names offset 4000, and the records have 12"),
        ("0 0 0\n", "line 1"),
        ("\xff\n", "line 1"),
        (f"{10**30}\t0\n", "line 1"),
    ],
)
def test_index_of_another_file_is_reported(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, [b"abc"])
    path.with_suffix(".idx").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=said):
        RecordIO(path)


def test_missing_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'.*none\.rec' cannot be opened"):
        RecordIO(tmp_path / "none.rec")
    path = write(tmp_path, [b"abc"])
    with pytest.raises(ConfigError, match="there is no index"):
        RecordIO(path, tmp_path / "none.idx")
    with pytest.raises(ConfigError, match="cannot be written"):
        RecordWriter(tmp_path / "none" / "some.rec")


def test_index_that_cannot_be_written_is_made_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, [b"abc", b"def"])
    path.with_suffix(".idx").unlink()

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)
        assert list(RecordIO(path)) == [b"abc", b"def"]
    assert not path.with_suffix(".idx").exists()


def test_block_that_an_exception_ends_keeps_the_earlier_file(tmp_path: Path) -> None:
    path = write(tmp_path, [b"old"])
    with pytest.raises(ZeroDivisionError), RecordWriter(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert list(RecordIO(path)) == [b"old"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["some.idx", "some.rec"]


def test_a_pickle_with_the_earlier_name_of_a_module_loads(many: Path) -> None:
    """The classes that read files of known formats lay in reader.data."""
    kept = pickle.dumps(RecordIO(many), 0)
    before = kept.replace(b"reader.formats.", b"reader.data.")
    assert b"reader.data.record_io" in before
    assert b"reader.formats" not in before
    records = pickle.loads(before)
    assert type(records) is RecordIO
    assert records[5] == content(5)


def test_a_file_of_tensorflow_is_told_as_what_it_is(tmp_path: Path) -> None:
    # a record of no bytes: its length, the masked CRC-32C of that, and of the bytes
    path = tmp_path / "train.tfrecord"
    path.write_bytes(bytes(8) + b"\x29\x03\x98\x07" + b"\xd8\xea\x82\xa2")
    with pytest.raises(ConfigError, match="is a TFRecord file, and no file of RecordIO: write its"):
        RecordIO(path)
    path.write_bytes(bytes(8) + b"\x29\x03\x98\x08" + bytes(4))
    with pytest.raises(DatasetError, match="in place of the magic"):
        RecordIO(path)
