"""Programs nobody wrote for us: the examples in docstrings of paddle.io, with one import changed.

Imports the harness and paddle, whose docstrings are read when the tests are collected. Each example
is run twice, with the import it has and with ours, from the same seeds; what it prints is compared.
"""

from __future__ import annotations

import doctest
import inspect
import re

import pytest

from tests.peers.program import Story, Verdict, compares

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150), pytest.mark.nightly]

NAMES = (
    "Dataset IterableDataset TensorDataset ComposeDataset ChainDataset ConcatDataset Subset "
    "random_split Sampler SequenceSampler RandomSampler WeightedRandomSampler SubsetRandomSampler "
    "BatchSampler DistributedBatchSampler get_worker_info DataLoader"
).split()
SEEDS = """\
import random as _random
import numpy as _numpy
import paddle as _paddle
import paddle.io
_random.seed(3), _numpy.random.seed(3), _paddle.seed(3)
"""


def examples_of(name: str) -> list[Story]:
    """Return the examples in the docstring of `paddle.io.<name>`, as programs."""
    import paddle.io

    text = inspect.getdoc(getattr(paddle.io, name)) or ""
    found = []
    for block in re.split(r"\.\. code-block:: python", text)[1:]:
        sources = [example.source for example in doctest.DocTestParser().get_examples(block)]
        if sources:
            found.append(Story(SEEDS + "".join(sources)))
    return found


EXAMPLES = [
    pytest.param(id=f"{name}-{number}", marks=pytest.mark.compares(story))
    for name in NAMES
    for number, story in enumerate(examples_of(name))
]


def test_every_name_has_an_example_that_imports_paddle_io() -> None:
    for name in NAMES:
        stories = examples_of(name)
        assert stories, name
        assert all("paddle.io" in story.text for story in stories), name
    assert len(EXAMPLES) >= len(NAMES) + 2


@pytest.mark.parametrize((), EXAMPLES)
def test_example_of_paddles_docstring_prints_the_same(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert theirs.exit_code == 0, theirs.story()
    assert ours.exit_code == 0, ours.story()
    assert ours.lines == theirs.lines
    assert "Traceback" not in ours.stderr, ours.story()


(LOADER_EXAMPLE,) = examples_of("DataLoader")


@compares(LOADER_EXAMPLE)
def test_training_example_of_the_docstring_prints_80_equal_losses(
    both: tuple[Verdict, Verdict],
) -> None:
    theirs, ours = both
    losses = [line for line in ours.lines if "loss =" in line]
    assert len(losses) == 80
    assert losses == [line for line in theirs.lines if "loss =" in line]
