"""Cached datasets in loaders: the same batches, made once, with any workers."""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import ConfigError, DataLoader, Dataset, cache
from reader.images import (
    CenterCrop,
    ImageFolder,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    array_image,
    kept_pictures,
    view,
)

ROOT = Path(__file__).parents[2]
WAYS = ["none", "threads", "fork", "spawn", "forkserver"]


def chosen(way: str) -> dict[str, Any]:
    if way == "none":
        return {"num_workers": 0}
    if way == "threads":
        return {"num_workers": 2, "worker_type": "thread"}
    return {"num_workers": 2, "start_method": way}


class Slow(Dataset[Any]):
    """Writes each index that it makes into a file, so that all processes are counted."""

    def __init__(self, log: Path) -> None:
        self.log = str(log)

    def __getitem__(self, index: int) -> Any:
        with open(self.log, "a") as file:
            file.write(f"{index}\n")
        return np.full(5, index, np.float32), index

    def __len__(self) -> int:
        return 24


def augmented(sample: Any, index: int) -> Any:
    array, number = sample
    return array + reader.sample_rng(index).integers(100), number


def rows(batches: Any) -> list[Any]:
    return [
        np.concatenate([array[:, :1], number[:, None]], 1).tolist() for array, number in batches
    ]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["memory", "disk"])
def test_each_sample_is_made_once_by_all_workers(way: str, where: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    given: dict[str, Any] = {"memory": "1MB"} if where == "memory" else {"disk": tmp_path / "cache"}
    plain = Slow(tmp_path / "other").map(augmented, with_index=True)
    cached = cache(Slow(log), **given).map(augmented, with_index=True)
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3}
    with DataLoader(cached, **options, **chosen(way)) as loader:
        found = [rows(loader) for _ in range(3)]
        counts = loader.stats()["cache"]
    assert found == [rows(batches) for batches in epochs(DataLoader(plain, **options), 3)]
    assert found[0] != found[1]
    made = log.read_text().split()
    assert sorted(map(int, made)) == list(range(24))
    assert (counts["hits"], counts["misses"]) == (48, 24)


def epochs(loader: Any, count: int) -> Any:
    return [list(loader) for _ in range(count)]


def test_a_resumed_run_goes_on_with_the_same_batches(tmp_path: Path) -> None:
    def made(where: dict[str, Any]) -> Any:
        cached = cache(Slow(tmp_path / "log"), **where).map(augmented, with_index=True)
        return DataLoader(cached, batch_size=4, shuffle=True, seed=3, num_workers=2)

    with made({"memory": "1MB"}) as loader:
        whole = [rows(loader), rows(loader)]
    with made({"disk": tmp_path / "cache"}) as loader:
        batches = iter(loader)
        first = [next(batches), next(batches)]
        state = loader.state_dict()
        batches.close()
    with made({"disk": tmp_path / "cache", "memory": "1MB"}) as loader:
        loader.load_state_dict(state)
        rest = list(loader)
        assert rows([*first, *rest]) == whole[0]
        assert rows(loader) == whole[1]


RANK = """
import sys
from collections.abc import Iterator
from pathlib import Path
import reader
from tests.contract.test_cache import Slow

if __name__ == "__main__":
    cached = reader.cache(Slow(Path(sys.argv[1])), memory="1MB")
    loader = reader.DataLoader(cached, batch_size=4, num_workers=1)
    for command in sys.stdin:
        for _ in loader:
            pass
        print(loader.stats()["cache"]["bytes"], flush=True)
"""


LAUNCHED = {  # the environment that launchers set for each of two ranks
    "torchrun": {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"},
    "paddle": {"PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ENDPOINTS": "a:1,b:1"},
    "srun": {"SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
    "mpirun": {"OMPI_COMM_WORLD_SIZE": "2"},
}
MADE_TWICE = {  # no ranks, or ranks of two launches: samples may depend on unshared settings
    "alone": [{}, {}],
    "one": [{**LAUNCHED["torchrun"], "WORLD_SIZE": "1"}] * 2,
    "two launches": [{**LAUNCHED["torchrun"], "MASTER_PORT": port} for port in ("29500", "29501")],
}


@contextlib.contextmanager
def ranks_of(log: Path, environments: list[dict[str, str]]) -> Iterator[list[Any]]:
    """Start a rank with each environment; each counts the bytes of its cache when it is asked."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(log)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        for environment in environments
    ]
    try:
        yield started
    finally:
        for rank in started:
            rank.kill()
            rank.communicate()


def bytes_after_an_epoch(rank: Any) -> int:
    rank.stdin.write("go\n")
    rank.stdin.flush()
    return int(rank.stdout.readline())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("launcher", LAUNCHED)
def test_ranks_of_one_host_use_the_memory_of_one(launcher: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ranks_of(log, [{**LAUNCHED[launcher], "RANK": number} for number in "01"]) as ranks:
        sizes = [bytes_after_an_epoch(rank) for rank in [*ranks, ranks[0]]]
        ranks[0].kill()  # its entries stay with the other
        sizes.append(bytes_after_an_epoch(ranks[1]))
    assert len(set(sizes)) == 1
    assert sorted(map(int, log.read_text().split())) == list(range(24))
    assert not [name for name in memory_files() if "lodreader-cache-" in name]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("environments", MADE_TWICE.values(), ids=MADE_TWICE)
def test_processes_that_are_no_ranks_of_one_launch_share_no_memory(
    environments: list[dict[str, str]], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with ranks_of(log, environments) as processes:
        for process in processes:
            bytes_after_an_epoch(process)
    assert sorted(map(int, log.read_text().split())) == sorted([*range(24), *range(24)])


SPAWNED = """
import sys
from collections.abc import Iterator
from pathlib import Path
import torch.distributed
import torch.multiprocessing
import reader
from tests.contract.test_cache import Slow

def rank(number, log, store):
    torch.distributed.init_process_group("gloo", init_method=store, rank=number, world_size=2)
    cached = reader.cache(Slow(Path(log)), memory="1MB")
    for turn in range(2):
        torch.distributed.barrier()
        if turn == number:
            print([cached[index][1] for index in range(24)] == list(range(24)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, (sys.argv[1], sys.argv[2]), nprocs=2)
"""


@pytest.mark.peer
@pytest.mark.nightly
def test_ranks_that_torch_spawned_use_the_memory_of_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "ranks.py").write_text(SPAWNED)
    log, store = tmp_path / "log", f"file://{tmp_path / 'store'}"
    subprocess.run(
        [sys.executable, str(tmp_path / "ranks.py"), str(log), store],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=300,
    )
    assert sorted(map(int, log.read_text().split())) == list(range(24))


def memory_files() -> list[str]:
    gc.collect()
    found = []
    for fd in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{fd}"
        if os.path.islink(path):
            found.append(os.readlink(path))
    return found


@pytest.mark.peer
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.nightly)])
def test_pytorchs_loader_and_the_face_use_it_too(method: str, tmp_path: Path) -> None:
    from reader.compat.torch import DataLoader as TorchFace

    data = pytest.importorskip("torch").utils.data
    for kind in (data.DataLoader, TorchFace):
        log = tmp_path / kind.__module__
        cached = cache(Slow(log), memory="1MB")
        for _ in range(2):
            loader = kind(cached, 4, num_workers=1, multiprocessing_context=method)
            numbers = [int(number) for _, batch in loader for number in batch]
            assert numbers == list(range(24))
        assert sorted(map(int, log.read_text().split())) == list(range(24))


# -- pictures ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for number in range(12):
        height, width = (int(side) for side in rng.integers(60, 700, 2))
        coarse = image.fromarray(rng.integers(0, 256, (8, 9, 3), dtype=np.uint8))
        picture = coarse.resize((width, height))
        if number % 4 == 3:
            picture = picture.convert("L")
        path = folder / "ab"[number % 2] / f"{number}.{('jpg', 'png', 'jpg')[number % 3]}"
        path.parent.mkdir(exist_ok=True)
        exif = picture.getexif()
        exif[0x0112] = 1 + number % 8
        picture.save(path, exif=exif)
    return folder


FORMS: dict[str, dict[str, Any]] = {
    "training": {
        "size": (64, 48),
        "transforms": [
            RandomResizedCrop(),
            RandomHorizontalFlip(),
            Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4)),
        ],
        "layout": "channels_first",
    },
    "validation": {"transforms": [Resize(40), CenterCrop(32)]},
    "upright": {"size": (33, 44), "upright": True},
    "grey": {"size": (33, 44), "mode": "L"},
}


@pytest.mark.sampled(8)
@pytest.mark.timeout(240)  # spawned workers import torch, 32 times
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["none", "threads", "fork", "spawn"])
def test_kept_pictures_are_those_of_the_files(
    root: Path, tmp_path: Path, form: str, way: str
) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 5}
    plain = DataLoader(ImageFolder(root, **FORMS[form]), **options)
    expected = [[image for image, _ in plain] for _ in range(4)]
    for cached in (
        ImageFolder(root, **FORMS[form], cache="100MB"),
        cache(ImageFolder(root, **FORMS[form]), disk=tmp_path / "pixels"),
        cache(ImageFolder(root, **FORMS[form]), memory="10MB", what="files"),
        cache(ImageFolder(root, **FORMS[form]), memory="30MB", check=0.2),
    ):
        with DataLoader(cached, **options, **chosen(way)) as loader:
            for batches in expected:
                for batch, (image, _) in zip(batches, loader, strict=True):
                    assert np.array_equal(batch, image)
            counts = loader.stats()["cache"]
        assert counts["hits"] >= 12
        assert counts["refused"] == counts["damaged"] == counts["evictions"] == 0


def test_a_picture_whose_file_changed_is_made_again(root: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "a" / "1.png"
    path.parent.mkdir()
    for what in ("pixels", "files"):
        image.new("RGB", (20, 10), "red").save(path)
        cached = cache(ImageFolder(tmp_path), memory="1MB", what=what)
        assert cached[0][0][0, 0].tolist() == [255, 0, 0]
        image.new("RGB", (21, 10), "blue").save(path)
        for _ in range(2):
            assert cached[0][0].shape == (10, 21, 3)
            assert cached[0][0][0, 0].tolist() == [0, 0, 255]
        assert cached._cache.stats()["evictions"] == 1


def test_smaller_pictures_take_less_memory(root: Path) -> None:
    options: dict[str, Any] = {"size": (32, 32), "transforms": [RandomResizedCrop()]}
    whole = ImageFolder(root, **options, cache="100MB")
    small = ImageFolder(root, **options, cache="100MB", cache_shorter_side=50)
    for folder in (whole, small):
        for _ in range(2):
            for index in range(12):
                assert folder[index][0].shape == (32, 32, 3)
    sizes = [folder._cache.stats()["bytes"] for folder in (whole, small)]
    assert sizes[1] < sizes[0] / 8
    assert small._cache.stats()["hits"] == 12


def test_damaged_files_are_reported_and_not_cached(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "a" / "1.jpg"
    path.parent.mkdir()
    path.write_bytes(b"\xff\xd8\xff nothing")
    for what in ("pixels", "files"):
        cached = cache(ImageFolder(tmp_path), memory="1MB", what=what)
        for _ in range(2):
            with pytest.raises(reader.ImageError, match=r"1\.jpg' is a damaged JPEG file"):
                cached[0]
    path.unlink()
    with pytest.raises(reader.ImageError, match="cannot be read"):
        cached[0]


def test_invalid_options_of_kept_pictures_are_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match='what must be "pixels", "files" or "samples"'):
        cache(ImageFolder(root), memory="1MB", what="nothing")
    with pytest.raises(ConfigError, match="cache_shorter_side must be an int of 1 or more"):
        ImageFolder(root, cache="1MB", cache_shorter_side=0)
    with pytest.raises(ConfigError, match="memory must be a number of bytes"):
        ImageFolder(root, cache="many")
    whole = cache(ImageFolder(root, size=(8, 8)), memory="1MB", what="samples")
    assert np.array_equal(whole[1][0], ImageFolder(root, size=(8, 8))[1][0])


def test_random_transforms_are_not_kept_by_any_loader(root: Path) -> None:
    options: dict[str, Any] = {"size": (8, 8), "transforms": [RandomResizedCrop()]}
    cached = cache(ImageFolder(root, **options), memory="1MB", what="samples")
    with pytest.raises(reader.ReaderError, match="gives no numbers within a cache"):
        cached[0]
    plain = ImageFolder(root, transforms=[Resize(20), CenterCrop(8)])
    kept = cache(plain, memory="1MB", what="samples")
    for _ in range(2):
        (image, _), *_ = DataLoader(kept, batch_size=12)
        assert np.array_equal(image[3], plain[3][0])


def test_other_samples_get_their_own_cache(root: Path) -> None:
    base = ImageFolder(root, size=(8, 8), cache="20MB")
    halves = [copy.copy(base), copy.copy(base)]
    halves[0].samples, halves[1].samples = base.samples[:6], base.samples[6:]
    for _ in range(3):
        for half in halves:
            for index in range(6):
                half[index]
    for half in halves:
        counts = half._cache.stats()
        assert (counts["hits"], counts["misses"], counts["evictions"]) == (12, 6, 0)


def test_a_picture_is_counted_once(root: Path) -> None:
    cached = ImageFolder(root, size=(20, 20), transforms=[RandomResizedCrop()], cache="50MB")
    for _ in range(4):
        for index in range(12):
            cached[index]
    counts = cached._cache.stats()
    assert counts["hits"] + counts["misses"] == 48


class Own(ImageFolder):
    """Has samples of its own; `made` counts them."""

    made = 0

    def __getitem__(self, index: int, out: Any = None) -> Any:
        type(self).made += 1
        return np.full(3, index), self.targets[index]


class Augmented(ImageFolder):
    def __getitem__(self, index: int, out: Any = None) -> Any:
        image, number = self._plain(index)
        return image[::-1], number

    def _plain(self, index: int) -> Any:
        return super().__getitem__(index)


def test_samples_are_kept_if_nobody_asks_for_pictures(root: Path) -> None:
    Own.made = 0
    cached = cache(Own(root), memory="1MB")
    for _ in range(2):
        assert [cached[index][0][0] for index in range(12)] == list(range(12))
    assert Own.made == 12
    assert cached._cache.stats()["hits"] == 12
    for made in (
        lambda: cache(Own(root), memory="1MB", what="pixels"),
        lambda: Own(root, cache="1MB"),
    ):
        with pytest.warns(UserWarning, match=r"Own has a __getitem__ .* no picture is kept. Pass"):
            made()


def test_pictures_are_kept_of_a_subclass_that_asks_for_them(root: Path) -> None:
    plain = ImageFolder(root, size=(8, 8))
    for cached in (
        cache(Augmented(root, size=(8, 8)), memory="9MB"),
        cache(Augmented(root, size=(8, 8)), memory="9MB", what="files"),
        Augmented(root, size=(8, 8), cache="9MB"),
    ):
        for _ in range(2):
            for index in range(12):
                assert np.array_equal(cached[index][0], plain[index][0][::-1])
        assert cached._cache.stats()["hits"] >= 12


def test_a_cache_within_a_cache_is_refused(root: Path, tmp_path: Path) -> None:
    folder = ImageFolder(root, size=(8, 8), cache="1MB")
    for inner in (folder, cache(ImageFolder(root), memory="1MB")):
        with pytest.raises(ConfigError, match=r"this ImageFolder keeps its pictures already: make"):
            cache(inner, disk=tmp_path)
    with pytest.raises(ConfigError, match=r"this Slow is cached already: pass memory= and disk="):
        cache(cache(Slow(tmp_path / "log"), memory="1MB"), disk=tmp_path)
    whole = cache(folder, memory="1MB", what="samples")  # of the results of the transforms
    assert np.array_equal(whole[1][0], folder[1][0])


@pytest.mark.parametrize("what", ["pixels", "smaller"])
def test_pictures_whose_entry_is_dropped_during_a_read_are_read_again(
    root: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"size": (16, 16)}
    if what == "smaller":
        options["cache_shorter_side"] = 30
    folder = ImageFolder(root, **options, cache="20MB")
    expected = folder[3][0]
    module, drawn = (kept_pictures if what == "pixels" else array_image), []

    def render_view(pixels: Any, *arguments: Any) -> None:
        if not pixels.flags.writeable:  # of the cache: another process writes there
            for number in range(folder._cache._files[0].count):
                folder._cache._files[0].read(number, tag=1)
            pixels = np.zeros_like(pixels)
            drawn.append(1)
        view.render_view(pixels, *arguments)

    monkeypatch.setattr(module, "render_view", render_view)
    assert np.array_equal(folder[3][0], expected)
    assert drawn == [1]


def test_damage_outside_of_a_crop_is_not_noticed(root: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (400, 300, 3), dtype=np.uint8)
    path = tmp_path / "a" / "1.jpg"
    path.parent.mkdir()
    image.fromarray(pixels).save(path)
    content = bytearray(path.read_bytes())
    content[len(content) * 9 // 10 : -2] = b"\xff\xd0" * (
        (len(content[len(content) * 9 // 10 : -2])) // 2
    )
    path.write_bytes(content)

    def top(height: int, width: int, rng: Any) -> Any:
        return 0, 0, 64, 64

    try:
        expected = ImageFolder(tmp_path, crop=top)[0][0]
    except reader.ImageError:
        pytest.skip("this decoder sees it")
    cached = ImageFolder(tmp_path, crop=top, cache="10MB")
    for _ in range(2):
        assert np.array_equal(cached[0][0], expected)
