"""GluonNLP's DatasetLoader: files, datasets and batches in order, none lost, resumed anywhere."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, StateError
from reader.compat.gluon.arrays import is_nd
from reader.compat.gluon.nlp import DatasetLoader

WORKERS = [(0, 0), (1, 0), (0, 2), (2, 2)]


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Five files of numbers: file k has k + 3 of them."""
    for file in range(5):
        rows = [str(file * 100 + row) for row in range(file + 3)]
        (tmp_path / f"part{file}.txt").write_text("\n".join(rows))
    return str(tmp_path / "*.txt")


def numbers_of(paths: list[str], plus: int = 0) -> list[int]:
    assert isinstance(paths, list)
    return [int(line) + plus for path in paths for line in Path(path).read_text().split()]


def batches_of(dataset: list[int], size: int = 2) -> list[list[int]]:
    return [
        list(range(start, min(start + size, len(dataset))))
        for start in range(0, len(dataset), size)
    ]


def in_shards(dataset: list[int]) -> list[list[list[int]]]:
    return [[[0], [1, 2]], [list(range(3, len(dataset)))]]


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(each) for each in value]
    return (value.asnumpy() if is_nd(value) else value).tolist()


def expected(circle: int, order: Any = range(5)) -> list[list[int]]:
    """Return the batches of an epoch."""
    order, found = list(order), []
    for start in range(0, 5, circle):
        dataset = [
            file * 100 + row for file in order[start : start + circle] for row in range(file + 3)
        ]
        found += [[dataset[index] for index in batch] for batch in batches_of(dataset)]
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("circle", [1, 2, 5])
def test_every_file_comes_once(files: str, workers: tuple[int, int], circle: int) -> None:
    loader = DatasetLoader(
        files,
        "sequential",
        numbers_of,
        batches_of,
        num_dataset_workers=workers[0],
        num_batch_workers=workers[1],
        circle_length=circle,
        dataset_cached=True,
        num_max_dataset_cached=2,
    )
    for _ in range(2):
        assert [plain(batch) for batch in loader] == expected(circle)


def test_functions_get_their_arguments(files: str) -> None:
    loader = DatasetLoader(
        files, [4, 0], numbers_of, batches_of, {"plus": 1}, {"size": 3}, batchify_fn=sum
    )
    assert list(loader) == [401 + 402 + 403, 404 + 405 + 406, 407, 1 + 2 + 3]


def test_random_files_come_as_numpy_draws_them(files: str) -> None:
    loader = DatasetLoader(files, "random", numbers_of, batches_of, num_dataset_workers=1)
    np.random.seed(3)
    orders = [np.random.permutation(5).tolist() for _ in range(2)]
    np.random.seed(3)
    for order in orders:
        assert [plain(batch) for batch in loader] == expected(1, order)


@pytest.mark.parametrize("workers", WORKERS)
def test_steps_may_be_shards(files: str, workers: tuple[int, int]) -> None:
    loader = DatasetLoader(
        files,
        [1],
        numbers_of,
        in_shards,
        num_dataset_workers=workers[0],
        num_batch_workers=workers[1],
    )
    assert [plain(step) for step in loader] == [[[100], [101, 102]], [[103]]]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", WORKERS)
def test_a_run_resumes_at_any_batch(files: str, workers: tuple[int, int]) -> None:
    def make() -> DatasetLoader:
        return DatasetLoader(
            files,
            "random",
            numbers_of,
            batches_of,
            num_dataset_workers=workers[0],
            num_batch_workers=workers[1],
            circle_length=2,
        )

    np.random.seed(1)
    loader = make()
    whole, states = [], [json.dumps(loader.state_dict())]
    for batch in loader:
        whole.append(plain(batch))
        states.append(json.dumps(loader.state_dict()))
    assert json.loads(json.dumps(loader.state_dict())) == {"files": None}
    for count in range(1, len(whole) + 1, 3):
        resumed = make()
        resumed.load_state_dict(json.loads(states[count]))
        assert [plain(batch) for batch in resumed] == whole[count:]


def failing(paths: list[str]) -> list[int]:
    if "part1" in paths[0]:
        raise ZeroDivisionError("of the user")
    return numbers_of(paths)


@pytest.mark.parametrize("workers", WORKERS)
def test_the_error_of_a_dataset_takes_the_place_of_its_batches(
    files: str, workers: tuple[int, int]
) -> None:
    loader = DatasetLoader(
        files,
        "sequential",
        failing,
        batches_of,
        num_dataset_workers=workers[0],
        num_batch_workers=workers[1],
    )
    batches = iter(loader)
    found = [plain(next(batches)) for _ in range(2)]
    with pytest.raises(ZeroDivisionError, match="of the user"):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [plain(batch) for batch in batches]
    assert found + rest == [each for each in expected(1) if each[0] // 100 != 1]
    loader.load_state_dict(state)
    assert [plain(batch) for batch in loader] == rest


def test_an_interrupted_dataset_is_made_again(files: str) -> None:
    interrupts = iter([True])

    def interrupted(paths: list[str]) -> list[int]:
        if "part2" in paths[0] and next(interrupts, False):
            signal.raise_signal(signal.SIGINT)
        return numbers_of(paths)

    batches = iter(DatasetLoader(files, "sequential", interrupted, batches_of))
    found = []
    while True:
        try:
            found.append(plain(next(batches)))
        except KeyboardInterrupt:
            found.append("interrupt")
        except StopIteration:
            break
    assert found.count("interrupt") == 1
    assert [each for each in found if each != "interrupt"] == expected(1)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"file_patterns": "/nowhere/*"}, ValueError, "Cannot find any file with path"),
        ({"file_sampler": "no"}, ConfigError, "file_sampler must be"),
        ({"dataset_fn": 3}, TypeError, "dataset_fn must be a function"),
        ({"circle_length": 0}, AssertionError, "circle_length must be 1 or more"),
        ({"num_batch_workers": -1}, AssertionError, "num_batch_workers must be 0 or more"),
        ({"dataset_prefetch": -1}, ConfigError, "dataset_prefetch must be"),
    ],
)
def test_invalid_arguments_are_refused(
    files: str, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    arguments = {
        "file_patterns": files,
        "file_sampler": "sequential",
        "dataset_fn": numbers_of,
        "batch_sampler_fn": batches_of,
        **options,
    }
    with pytest.raises(kind, match=text):
        DatasetLoader(**arguments)


@pytest.mark.parametrize("state", [{}, {"files": [9], "dataset": 0}, {"files": [0]}, 3])
def test_a_state_of_something_else_is_refused(files: str, state: Any) -> None:
    loader = DatasetLoader(files, "sequential", numbers_of, batches_of)
    with pytest.raises(StateError):
        loader.load_state_dict(state)
