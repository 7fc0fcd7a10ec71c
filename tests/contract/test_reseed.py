"""`reseed=`: draws of a dataset's own generators are a function of seed, epoch and batch."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from reader import ConfigError, ConfigTypeError, DataLoader, IterableDataset, shard
from reader.compat.gluon import DataLoader as GluonLoader
from reader.compat.paddle import DataLoader as PaddleLoader
from reader.compat.torch import DataLoader as TorchLoader
from reader.compat.torch import StatefulDataLoader
from tests.datasets import digest_of

COUNT, SIZE = 26, 4
BATCHES = -(-COUNT // SIZE)


class Augmented:
    """Pictures that `augment` changes, by its own generators."""

    def __init__(self) -> None:
        image = np.random.default_rng(1).integers(0, 256, (24, 20, 3), np.uint8)
        self.images = [np.roll(image, i, axis=1) for i in range(COUNT)]

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return self.augment(self.images[index]), index

    def augment(self, image: Any) -> Any:
        raise NotImplementedError

    def reseed(self, seed: int) -> None:
        raise NotImplementedError


class WithGenerators(Augmented):
    """A Generator of NumPy's and one of Python's."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng()
        self.random = random.Random()

    def augment(self, image: Any) -> Any:
        noise = self.rng.integers(0, 9, image.shape, np.uint8)
        return np.roll(image, self.random.randrange(20), axis=1) + noise

    def reseed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.random.seed(seed)


class WithAlbumentations(Augmented):
    def __init__(self) -> None:
        super().__init__()
        A = pytest.importorskip("albumentations")  # noqa: N806  its users' name for it
        steps = [A.RandomCrop(16, 16), A.HorizontalFlip(), A.RandomBrightnessContrast(), A.Rotate()]
        self.transform = A.Compose(steps, seed=137)

    def augment(self, image: Any) -> Any:
        return self.transform(image=image)["image"]

    def reseed(self, seed: int) -> None:
        self.transform.set_random_seed(seed & 0xFFFF_FFFF)


class WithOpenCV(Augmented):
    def __init__(self) -> None:
        super().__init__()
        pytest.importorskip("cv2")

    def augment(self, image: Any) -> Any:
        import cv2

        noise = np.empty(image.shape, np.uint8)
        cv2.randu(noise, 0, 50)
        return cv2.add(image, noise)

    def reseed(self, seed: int) -> None:
        import cv2

        cv2.setRNGSeed(seed & 0x7FFF_FFFF)


def reseed(dataset: Any, seed: int) -> None:
    dataset.reseed(seed)


KINDS: dict[str, Callable[[], Augmented]] = {
    "generators": WithGenerators,
    "albumentations": WithAlbumentations,
    "OpenCV": WithOpenCV,
}
WORKERS: list[dict[str, Any]] = [
    {"num_workers": 1},
    {"num_workers": 2},
    {"num_workers": 5},
    {"num_workers": 2, "start_method": "spawn"},
    {"num_workers": 1, "worker_type": "thread"},
    {"num_workers": 3, "worker_type": "thread"},
    {"num_workers": 3, "worker_type": "thread", "seed_globals": False},
    {"seed_globals": False},
]


def opened(dataset: Any, make: Any = DataLoader, **options: Any) -> Any:
    return make(dataset, batch_size=SIZE, shuffle=True, **{"seed": 7, "reseed": reseed, **options})


def digests(loader: Any) -> list[str]:
    return [digest_of([batch]) for batch in loader]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", WORKERS, ids=lambda found: "-".join(map(str, found.values())))
def test_pictures_are_those_of_any_other_workers(kind: str, workers: dict[str, Any]) -> None:
    alone = opened(KINDS[kind]())
    wanted = [digests(alone) for _ in range(2)]
    assert wanted[0] != wanted[1]
    with opened(KINDS[kind](), **workers) as loader:
        assert [digests(loader) for _ in range(2)] == wanted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", range(1, BATCHES))
def test_pictures_are_those_of_a_run_that_was_not_interrupted(kind: str, at: int) -> None:
    whole = digests(opened(KINDS[kind]()))
    with opened(KINDS[kind](), num_workers=2) as loader:
        batches = iter(loader)
        found = [digest_of([next(batches)]) for _ in range(at)]
        state = loader.state_dict()
    with opened(KINDS[kind](), num_workers=3) as again:
        again.load_state_dict(state)
        assert found + digests(again) == whole


def test_without_reseed_pictures_depend_on_the_worker() -> None:
    with opened(WithGenerators(), reseed=None, num_workers=2) as loader:
        assert digests(loader) != digests(opened(WithGenerators()))


class Numbers(IterableDataset[Any]):
    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def reseed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __iter__(self) -> Any:
        for index in shard(range(COUNT)):
            yield index, self.rng.random()


def test_streams_repeat_and_resume() -> None:
    def make() -> Any:
        return DataLoader(Numbers(), batch_size=SIZE, num_workers=2, seed=3, reseed=reseed)

    with make() as loader:
        whole = digests(loader)
    with make() as loader:
        batches = iter(loader)
        found = [digest_of([next(batches)]) for _ in range(3)]
        state = loader.state_dict()
    with make() as again:
        again.load_state_dict(state)
        assert found + digests(again) == whole


@pytest.mark.parametrize("make", [TorchLoader, StatefulDataLoader, GluonLoader])
def test_faces_with_a_seed_take_it_too(make: Any) -> None:
    def found(workers: int) -> list[str]:
        loader = opened(WithGenerators(), make, num_workers=workers)
        return [digest_of([np.asarray(batch[0]) for batch in loader])]

    assert found(0) == found(1) == found(2)


def test_stateful_loader_needs_no_seed_for_reseed() -> None:
    def loader(workers: int) -> Any:
        torch.manual_seed(1)
        return StatefulDataLoader(
            WithGenerators(), batch_size=SIZE, num_workers=workers, reseed=reseed
        )

    whole = digests(loader(0))
    assert digests(loader(2)) == whole
    begun = loader(2)
    batches = iter(begun)
    next(batches)
    again = loader(1)
    again.load_state_dict(begun.state_dict())
    assert digests(again) == whole[1:]
    del batches


def test_reseed_is_called_before_each_batch_in_its_worker_with_another_seed() -> None:
    seen: list[tuple[int, int, int]] = []

    class Told(WithGenerators):
        def reseed(self, seed: int) -> None:
            seen.append((id(self), seed, threading.get_ident()))

        def augment(self, image: Any) -> Any:
            return image

    dataset = Told()
    with opened(dataset, num_workers=2, worker_type="thread") as loader:
        list(loader)
    assert {each[0] for each in seen} == {id(dataset)}
    assert len({each[1] for each in seen}) == len(seen) == BATCHES
    assert all(0 <= each[1] < 2**63 for each in seen)
    assert threading.get_ident() not in {each[2] for each in seen}


def fails(dataset: Any, seed: int) -> None:
    raise LookupError(f"no generator for {seed}")


@pytest.mark.parametrize("workers", [0, 2])
def test_exception_of_reseed_takes_the_place_of_the_batch(workers: int) -> None:
    with opened(WithGenerators(), num_workers=workers, reseed=fails) as loader:
        batches = iter(loader)
        for _ in range(BATCHES):
            with pytest.raises(LookupError, match="no generator for"):
                next(batches)
        with pytest.raises(StopIteration):
            next(batches)


def test_reseed_needs_a_seed() -> None:
    for make in (DataLoader, TorchLoader):
        with pytest.raises(ConfigError, match="reseed is called with the seed of each batch"):
            make(WithGenerators(), reseed=reseed)
    with pytest.raises(ConfigTypeError, match="reseed must be callable or None, got 3"):
        DataLoader(WithGenerators(), seed=1, reseed=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"reseed.*it is an argument of reader.DataLoader"):
        PaddleLoader(WithGenerators(), reseed=reseed)  # type: ignore[call-arg]


class DrawingFields(dict):
    """A sample that draws its fields on access."""

    def __getitem__(self, key: str) -> Any:
        return random.random() + np.random.rand()


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1}, {"num_workers": 1, "worker_type": "thread"}]
)
def test_samples_that_draw_when_they_are_collated_are_seeded(options: dict[str, Any]) -> None:
    samples = [DrawingFields(x=0.0) for _ in range(12)]
    datasets: list[Any] = [samples, np.array([*samples, None], object)[:-1]]
    for dataset in datasets:
        random.seed(1)
        before = random.getstate()
        first, again = (
            [
                dict.__getitem__(batch, "x").tolist()
                for batch in DataLoader(dataset, batch_size=4, seed=5, **options)
            ]
            for _ in range(2)
        )
        assert first == again
        assert len({tuple(batch) for batch in first}) == 3
        assert random.getstate() == before


@pytest.mark.parametrize("dataset", [[1.0, 2.0, 3.0, 4.0], np.zeros(4)], ids=["list", "array"])
def test_reseed_leaves_the_trainers_generators_alone(dataset: Any) -> None:
    def reseed(of: Any, seed: int) -> None:
        random.seed(seed)
        of[0] = random.random()

    random.seed(1)
    before = random.getstate()
    first, again = (
        [batch.tolist() for batch in DataLoader(dataset, batch_size=2, seed=5, reseed=reseed)]
        for _ in range(2)
    )
    assert first == again
    assert random.getstate() == before
