"""Progress bars of tqdm and rich that say how much of the loop is waiting."""

from __future__ import annotations

import io
import re

import pytest
import tqdm as its
from rich.console import Console

import reader
from reader import ConfigTypeError
from reader.integrations import rich, tqdm
from reader.integrations.waiting import Waiting
from tests.integrations.numbers import BATCHES, SIZE, Numbers, loaded
from tests.streams import RangeStream

with its.tqdm.get_lock():  # a semaphore, which tqdm keeps until the process ends
    pass
WAITS = r"waits \d{1,3} %"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bar_of_tqdm_shows_waiting_and_its_own_postfix(workers: int) -> None:
    shown = io.StringIO()
    with loaded(workers) as loader:
        batches = list(tqdm.progress(loader, desc="train", file=shown, mininterval=0))
    assert [batch[0, 0] for batch in batches] == list(range(0, BATCHES * SIZE, SIZE))
    last = shown.getvalue().rsplit("\r", 1)[1]
    assert re.search(rf"^train: 100%.*\| {BATCHES}/{BATCHES} \[.*, {WAITS}\]", last), last
    given = io.StringIO()
    with loaded(workers) as loader:
        for _ in tqdm.progress(loader, postfix="lr=0.1", file=given):
            pass
    assert re.search(rf", lr=0\.1, {WAITS}\]", given.getvalue())


@pytest.mark.parametrize("drop", [False, True])
def test_a_bar_over_several_places_counts_steps(drop: bool) -> None:
    for bar in (tqdm, rich):
        shown = io.StringIO()
        options = {"file": shown, "mininterval": 0}
        if bar is rich:
            options = {"console": Console(file=shown, force_terminal=True, width=100)}
        loader = reader.DataLoader(
            Numbers(), batch_size=SIZE, places=["cpu", "cpu", "cpu"], drop_last_group=drop
        )
        steps = len(list(bar.progress(loader, **options)))
        assert steps == loader.steps < len(loader)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
        assert "100%" in text.rsplit("\r", 1)[-1], text
        assert bar is rich or f"{steps}/{steps}" in text


def test_a_bar_of_tqdm_over_a_stream_has_no_total() -> None:
    shown = io.StringIO()
    loader = reader.DataLoader(RangeStream(6), batch_size=2)
    assert len(list(tqdm.progress(loader, file=shown))) == 3
    assert re.search(r"3it \[", shown.getvalue())


def test_a_bar_of_rich_shows_waiting() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    with loaded(2) as loader:
        assert len(list(rich.progress(loader, "train", console=console))) == BATCHES
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    assert re.search(rf"train .*100% .*{WAITS}", text), text


def test_a_bar_of_rich_over_a_stream_has_no_total() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    loader = reader.DataLoader(RangeStream(6), batch_size=2)
    assert len(list(rich.progress(loader, console=console))) == 3


def test_nothing_is_shown_before_the_first_batch_and_of_a_freed_loader() -> None:
    loader = reader.DataLoader(Numbers(), batch_size=SIZE)
    waiting = Waiting(loader, "test")
    assert str(waiting) == ""
    assert len(list(loader)) == BATCHES
    assert re.fullmatch(WAITS, str(waiting))
    del loader
    assert str(waiting) == ""


def test_non_loaders_are_refused_at_the_call() -> None:
    with pytest.raises(ConfigTypeError, match=r"progress takes a loader of this package"):
        tqdm.progress([1, 2])
    with pytest.raises(ConfigTypeError, match=r"WaitColumn takes a loader of this package"):
        rich.progress([1, 2])
