"""Files of a batch that the system reads before they are opened."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, Shards, Subset, write_shards
from reader.images import ImageFolder
from reader.stores.read_ahead import _is_in_memory, read_ahead

pillow_image = pytest.importorskip("PIL.Image")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(6):
        path = tmp_path / "a" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        pillow_image.fromarray(rng.integers(0, 256, (60, 60, 3), dtype=np.uint8)).save(path)
    return tmp_path


def forget(paths: list[str]) -> None:
    """Have the system drop files from memory."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def test_cold_files_are_read_and_warm_ones_are_left_alone(root: Path) -> None:
    folder = ImageFolder(root)
    paths = [path for path, _ in folder.samples]
    forget(paths)
    if any(map(_is_in_memory, paths)):
        pytest.skip("this file system keeps what it was told to forget")
    whole = [(path, 0, -1) for path in paths]
    read_ahead(whole)
    end = time.monotonic() + 20
    while not all(map(_is_in_memory, paths[1:])):
        assert time.monotonic() < end
    forget(paths[1:])  # the first stays
    with open(paths[0], "rb") as file:
        file.read()
    read_ahead(whole)
    assert not any(map(_is_in_memory, paths[2:]))


def test_files_that_cannot_be_opened_are_skipped(tmp_path: Path) -> None:
    read_ahead([])
    names = [str(tmp_path / "none"), "\0", str(tmp_path)]
    for count in (1, 3):
        read_ahead([(name, 0, -1) for name in names[:count]])


def test_pictures_of_shards_are_read_before_a_batch_is_made(tmp_path: Path) -> None:
    rng, file = np.random.default_rng(0), io.BytesIO()
    pillow_image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(file, "PNG")
    blocks = [bytes(rng.bytes(1 << 20)) for _ in range(6)]  # that nobody asks for
    rows = [{"png": file.getvalue(), "cls": k % 3, "bin": block} for k, block in enumerate(blocks)]
    write_shards(rows, tmp_path, "tar")
    pictures = Shards(tmp_path).images("png", "cls")
    (path,) = {pictures.origin(k).path for k in range(6)}
    places = [pictures.origin(k).offset for k in range(6)]
    forget([path])
    if any(_is_in_memory(path, place) for place in places):
        pytest.skip("this file system keeps what it was told to forget")
    pictures.__read_ahead__([1, 3, 5])
    end = time.monotonic() + 20
    while not all(_is_in_memory(path, places[k]) for k in (3, 5)):  # the first may be read
        assert time.monotonic() < end
    assert len(list(DataLoader(pictures, batch_size=3))) == 2


@pytest.mark.parametrize("collate", [None, list])
def test_a_loader_tells_which_files_it_will_read(
    root: Path, collate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ImageFolder(root)
    asked: list[list[int]] = []
    monkeypatch.setattr(ImageFolder, "__read_ahead__", lambda self, keys: asked.append(list(keys)))
    list(DataLoader(folder, batch_size=4, collate_fn=collate))
    list(DataLoader(Subset(folder, [5, 2, 1]), batch_size=3, collate_fn=collate))
    assert asked == [[0, 1, 2, 3], [4, 5], [5, 2, 1]]


def test_wrong_keys_are_reported_as_without_reading_ahead(root: Path) -> None:
    folder = ImageFolder(root)
    with pytest.raises(IndexError):
        next(iter(DataLoader(folder, batch_sampler=[[0, 17]])))
    with pytest.raises(IndexError):
        next(iter(DataLoader(Subset(folder, [1]), batch_sampler=[[0, 3]])))
    folder.__read_ahead__([0, -1, 6, -7])
