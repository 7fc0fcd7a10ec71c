"""Arguments that paddle.io 3.3.1 refuses: the same types, texts and order here.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from pathlib import Path

import pytest

from tests.peers.program import (
    OURS,
    PADDLE,
    Story,
    Verdict,
    demonstrated_by,
    demonstration,
    proved_by,
    run_command,
    switched,
)

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150)]

REFUSED = {
    "feed_list missing": "static(lambda: DataLoader(rows, return_list=False))",
    "num_workers negative": "DataLoader(rows, num_workers=-1)",
    "prefetch_factor 0": "DataLoader(rows, prefetch_factor=0)",
    "prefetch_factor negative": "DataLoader(rows, num_workers=2, prefetch_factor=-3)",
    "timeout negative": "DataLoader(rows, timeout=-1)",
    "stream with shuffle": "DataLoader(Stream(), shuffle=True)",
    "stream with batch_sampler": "DataLoader(Stream(), batch_sampler=[[1]])",
    "batch_sampler with batch_size": "DataLoader(rows, batch_sampler=[[1]], batch_size=2)",
    "batch_sampler with shuffle": "DataLoader(rows, batch_sampler=[[1]], shuffle=True)",
    "batch_sampler with drop_last": "DataLoader(rows, batch_sampler=[[1]], drop_last=True)",
    "batch_size 0": "DataLoader(rows, batch_size=0)",
    "batch_size negative": "DataLoader(rows, batch_size=-2)",
    "batch_size a fraction": "DataLoader(rows, batch_size=2.5)",
    "batch_size text": "DataLoader(rows, batch_size='a')",
    "shuffle a number": "DataLoader(rows, shuffle=1)",
    "drop_last a number": "DataLoader(rows, drop_last=1)",
    "empty dataset shuffled": "DataLoader([], shuffle=True)",
    "place not compiled in": "DataLoader(rows, places='gpu:0')",
    "place unknown": "DataLoader(rows, places='moon')",
    "place a number": "DataLoader(rows, places=5)",
    "places with one unknown": "DataLoader(rows, places=['cpu', 'gpu:0'])",
    "places with a number": "DataLoader(rows, places=['cpu', 3])",
    "length of a stream": "len(DataLoader(Stream()))",
    "unknown argument": "DataLoader(rows, sampler=[1])",
    "no dataset": "DataLoader()",
    # two at once: the order of the checks decides which is reported
    "return_list before places": (
        "static(lambda: DataLoader(rows, return_list=False, places='gpu:0'))"
    ),
    "places before num_workers": "DataLoader(rows, places='gpu:0', num_workers=-1)",
    "num_workers before prefetch_factor": "DataLoader(rows, num_workers=-1, prefetch_factor=0)",
    "prefetch_factor before timeout": "DataLoader(rows, prefetch_factor=0, timeout=-1)",
    "timeout before the rules of streams": "DataLoader(Stream(), timeout=-1, shuffle=True)",
    "shuffle before batch_sampler of streams": (
        "DataLoader(Stream(), shuffle=True, batch_sampler=[[1]])"
    ),
    "timeout before batch_sampler": (
        "DataLoader(rows, timeout=-1, batch_sampler=[[1]], shuffle=True)"
    ),
    "batch_sampler before batch_size": "DataLoader(rows, batch_sampler=[[1]], batch_size=0)",
    "batch_size before shuffle": "DataLoader(rows, batch_size=0, shuffle=3)",
    "sampler's shuffle before batch_size": "DataLoader(rows, batch_size=2.5, shuffle=3)",
}
ACCEPTED = {
    "list": "DataLoader([1, 2, 3])",
    "range": "DataLoader(range(4), batch_size=3)",
    "empty dataset": "DataLoader([])",
    "unbatched": "DataLoader(rows, batch_size=None)",
    "num_workers 0 with everything of workers": (
        "DataLoader(rows, persistent_workers=True, worker_init_fn=print, use_shared_memory=True)"
    ),
    "batch_size true": "DataLoader(rows, batch_size=True)",
    "NumPy batch_size": "DataLoader(rows, batch_size=int(np.int64(2)))",
    "reader_buffer_size 0": "DataLoader(rows, reader_buffer_size=0)",
    "by position": "DataLoader(rows, None, None, True, None, 2, True, True, None, 2, True, 2, 2)",
    "feed_list without names": "DataLoader(rows, feed_list=[], return_list=False)",
    "return_list in dynamic graph": "DataLoader(rows, return_list=False)",
}
PROGRAM = """
    import numpy as np
    import paddle
    from paddle.io import DataLoader, IterableDataset
    from tests.peers.inside import is_optimized, outcome, tell

    class Stream(IterableDataset):
        def __iter__(self):
            yield 1

    def static(function):
        paddle.enable_static()
        try:
            return function()
        finally:
            paddle.disable_static()

    def length(loader):
        return len(loader) if isinstance(loader, DataLoader) else loader

    rows = [np.zeros(2, "float32")] * 5
    tell([is_optimized(), {
%s
    }])
"""


def _cases(cases: dict[str, str]) -> str:
    return "\n".join(
        f"        {name!r}: outcome(lambda: length({text}))," for name, text in cases.items()
    )


CHECKS = Story(PROGRAM % _cases({**REFUSED, **ACCEPTED}))


@pytest.mark.compares(CHECKS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_paddle_refuses_is_refused_with_its_type_and_text(
    both: tuple[Verdict, Verdict], name: str
) -> None:
    theirs, ours = (verdict.result[1][name] for verdict in both)
    assert theirs[0] == "raised"
    assert ours[0] == "raised", f"accepted: {ours}"
    _, kind, text, _ = theirs
    _, _, our_text, our_kinds = ours
    assert kind in our_kinds
    if kind != "TypeError":  # Python's own words for a wrong call
        assert our_text.startswith(text.removesuffix(".")), our_text


@pytest.mark.compares(CHECKS)
@pytest.mark.parametrize("name", ACCEPTED)
def test_what_paddle_accepts_is_accepted_with_the_same_length(
    both: tuple[Verdict, Verdict], name: str
) -> None:
    theirs, ours = (verdict.result[1][name] for verdict in both)
    assert theirs[0] == "returned", theirs
    assert ours == theirs


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_worker": 2}, "did you mean num_workers?"),
        ({"sampler": [0]}, "pass batch_sampler=BatchSampler(sampler=..., batch_size=...)"),
        ({"on_error": "skip"}, "it is an argument of reader.DataLoader; use that with framework="),
        ({"seed": 1}, "it is an argument of reader.DataLoader; use that with framework='paddle'"),
        ({"quux": 1}, "the arguments are dataset, feed_list, places"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_unknown_argument_suggests_the_nearest_name(options: dict[str, object], text: str) -> None:
    from reader.compat.paddle import DataLoader

    (name,) = options
    words = f"DataLoader.__init__() got an unexpected keyword argument {name!r}: "
    for kind in (DataLoader, type("Mine", (DataLoader,), {})):
        with pytest.raises(TypeError) as caught:
            kind([1], **options)
        assert str(caught.value).startswith(words + text)
    assert inspect.getfullargspec(DataLoader.__init__).args[1:3] == ["dataset", "feed_list"]


def test_signature_is_paddles_with_some_arguments_more() -> None:
    import paddle.io

    from reader.compat.paddle import DataLoader

    theirs = inspect.signature(paddle.io.DataLoader.__init__).parameters
    ours = dict(inspect.signature(DataLoader.__init__).parameters)
    for name in ("drop_last_group", "prefetch_next_epoch", "pool", "backend"):
        assert ours.pop(name).kind is inspect.Parameter.KEYWORD_ONLY
    assert list(ours) == list(theirs)
    assert [p.default for p in ours.values()] == [p.default for p in theirs.values()]
    assert [p.kind for p in ours.values()] == [p.kind for p in theirs.values()]


def test_every_name_of_paddle_io_is_here() -> None:
    import paddle.io

    import reader.compat.paddle as ours

    assert set(paddle.io.__all__) <= set(ours.__all__)
    for name in paddle.io.__all__:
        theirs, mine = getattr(paddle.io, name), getattr(ours, name)
        assert inspect.isclass(theirs) == inspect.isclass(mine)
        if name == "DataLoader":
            continue  # the test above
        names = list(inspect.signature(theirs).parameters)
        assert list(inspect.signature(mine).parameters)[: len(names)] == names, name


@demonstration
def test_paddle_checks_nothing_under_optimized_python(tmp_path: Path) -> None:
    is_optimized, found = _run_optimized(tmp_path, PADDLE)
    assert is_optimized
    assert found["timeout negative"][0] == "returned"
    assert found["batch_sampler with shuffle"][0] == "returned"


@pytest.mark.nightly
def test_checks_are_made_under_optimized_python_too(tmp_path: Path) -> None:
    is_optimized, found = _run_optimized(tmp_path, OURS)
    assert is_optimized
    accepted = [name for name in REFUSED if found[name][0] != "raised"]
    assert accepted == []


def _run_optimized(folder: Path, module: str) -> tuple[bool, dict[str, list[str]]]:
    path = folder / "program.py"
    path.write_text(switched(textwrap.dedent(CHECKS.text), module), encoding="utf-8")
    verdict = run_command([sys.executable, "-O", "-W", "ignore", str(path)])
    assert verdict.exit_code == 0, verdict.story()
    is_optimized, found = json.loads(verdict.lines[-1])
    return is_optimized, found


TOO_MUCH = {
    "num_workers a fraction": "DataLoader(rows, num_workers=1.5)",
    "shuffle without batching": "DataLoader(rows, batch_size=None, shuffle=True)",
}
LATE_CHECKS = Story(PROGRAM % _cases(TOO_MUCH))


@demonstrated_by(LATE_CHECKS)
def test_paddle_accepts_a_fraction_of_a_worker_and_a_shuffle_it_ignores(verdict: Verdict) -> None:
    assert [kind for kind, *_ in verdict.result[1].values()] == ["returned", "returned"]


@proved_by(LATE_CHECKS)
def test_fraction_of_a_worker_is_refused_and_shuffle_is_never_ignored(verdict: Verdict) -> None:
    found = verdict.result[1]
    assert found["num_workers a fraction"][0] == "raised"
    assert "1.5" in found["num_workers a fraction"][2]


UNBATCHED_SHUFFLE = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import numbers, tell

    np.random.seed(1)
    rows = np.arange(30, dtype="float32")[:, None]
    try:
        found = [numbers(row)[0] for row in DataLoader(rows, batch_size=None, shuffle=True)]
        tell([found == sorted(found), sorted(found) == list(range(30))])
    except ValueError as error:
        tell(str(error))
    """
)


@demonstrated_by(UNBATCHED_SHUFFLE)
def test_paddle_ignores_shuffle_without_batching(verdict: Verdict) -> None:
    assert verdict.result == [True, True]


@proved_by(UNBATCHED_SHUFFLE)
def test_shuffle_without_batching_shuffles_or_is_refused(verdict: Verdict) -> None:
    assert verdict.result == [False, True] or "shuffle" in verdict.result
