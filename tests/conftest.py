"""What every test runs under: the ledger, the seed, and the order of the tests.

May import the ledger and the tools of testing; nothing of the package, which a test imports for
itself. Owns the seed of the run: READER_TEST_SEED, or 0; and which variants of a test are sampled.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import io
import os
import re
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from tests.ledger import Ledger, adopt_orphans, settle

ROOT = Path(__file__).parents[1]
# in an environment of their own: make cluster
collect_ignore = [] if importlib.util.find_spec("ray") else ["cluster"]
RUN_SEED = int(os.environ.get("READER_TEST_SEED", "0"))
# Frameworks that make matrix could not install; nowhere else may a test be skipped for one.
WITHOUT = tuple(filter(None, os.environ.get("READER_TEST_WITHOUT", "").split(",")))

# The same examples in every run: anybody can repeat a failing run.
# A machine that others use, too, makes them slowly.
hypothesis.settings.register_profile(
    "reader",
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
# Other examples in each run, and 200 times as many: --hypothesis-profile nightly.
hypothesis.settings.register_profile(
    "nightly", database=None, deadline=None, print_blob=True, max_examples=20_000
)
hypothesis.settings.load_profile("reader")

_reports = pytest.StashKey[dict[str, pytest.TestReport]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--peers",
        choices=("recorded", "run", "record"),
        default="recorded",
        help="what a peer gives: as recorded for its version, by running it, or run and recorded",
    )
    parser.addoption(
        "--importing",
        choices=("frameworks", "none"),
        help="only the files that import a framework when they are collected, or only the others",
    )

    parser.addoption(
        "--variants",
        choices=("all", "sampled"),
        default="all",
        help="of the variants of a test, and of the ways to make batches, all or a fixed sample",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C and Ctrl-Backslash do what they do at a terminal, in programs of tests, too.

    Under nohup, in a background job and with some CI runners their signals are ignored, and a
    program inherits that.
    """
    for signum, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give tests out one by one, and whole files where one run serves all of a file's tests.

    Those are files of stories, which are told at once, and files with fixtures of the module.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return path if _is_told_at_once(path) else nodeid

    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests that import a framework last: the process is dear to fork from then on.

    Of each sort the slow ones come first, or the others would wait for one of them at the end.
    """
    if config.getoption("--variants") == "sampled":
        left_out = _unsampled(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(
        key=lambda item: (
            _speaks_of_frameworks(item.path),
            bool(_NAMES.search(item.name)),
            item.get_closest_marker("slow") is None,
        )
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out tests that --importing does not ask for."""
    asked = config.getoption("--importing")
    if asked is None or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return bool(_IMPORTED.search(text)) != (asked == "frameworks") or None


# Names of parameters that choose how batches are made, and not the claim about them.
_WAYS = {"workers", "num_workers", "worker_type", "method", "start_method", "cell", "each_cell"}
_KINDS = {"process", "thread", "fork", "spawn", "forkserver"}


def _unsampled(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the left-out variants: the same in every run and process.

    Of a test with the mark `sampled`, all but one of so many. Of others, of the same claim with
    each number and kind of workers, every other one; the ten promises are tried with each.
    """
    variants: dict[tuple[Any, ...], list[pytest.Item]] = {}
    parts: dict[tuple[Any, ...], int] = {}
    for item in items:
        claim, part = _claim_of(item), 2
        if mark := item.get_closest_marker("sampled"):
            claim, (part,) = claim[:1], mark.args
        elif item.path.name.startswith("test_invariant"):
            continue
        variants.setdefault(claim, []).append(item)
        parts[claim] = part
    left_out: set[pytest.Item] = set()
    for claim, of_one_claim in variants.items():
        of_one_claim.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        left_out.update(of_one_claim[-(-len(of_one_claim) // parts[claim]) :])
    return left_out


def _claim_of(item: pytest.Item) -> tuple[Any, ...]:
    """Return the test and its parameters, without those that say how batches are made."""
    found: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    indices = getattr(getattr(item, "callspec", None), "indices", {})
    rest = [
        (name, indices.get(name, 0))
        for name, value in found.items()
        if name not in _WAYS and not (isinstance(value, str) and value in _KINDS)
    ]
    return (item.nodeid.partition("[")[0], *rest)


_NAMES = re.compile(r"torch|paddle|jax")
# at the head of a file, by itself or through a module of ours that does
_IMPORTED = re.compile(
    r"^(?:import|from) [a-z_.]*(?:torch|paddle|contract\.feeding|state_samplers)", re.MULTILINE
)


@functools.cache
def _speaks_of_frameworks(path: Path) -> bool:
    """Whether tests of the file import frameworks, and not in a nursery's programs alone."""
    return not _is_told_at_once(str(path)) and bool(_NAMES.search(path.read_text(encoding="utf-8")))


@functools.cache
def _is_told_at_once(path: str) -> bool:
    file = ROOT / path
    text = file.read_text(encoding="utf-8")
    return (file.parent.name == "peers" and "Verdict" in text) or 'scope="module"' in text


def _absent(error: BaseException | None) -> str | None:
    """The framework that this Python does without (make matrix) and an import asked for."""
    while error is not None:
        name = (getattr(error, "name", None) or "") if isinstance(error, ImportError) else ""
        if name.partition(".")[0] in WITHOUT:
            return f"{name} cannot be had for this Python"
        error = error.__cause__ or error.__context__
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[pytest.CollectReport]:
    """Skip a file of tests that imports a framework which cannot be had."""
    report: pytest.CollectReport = yield
    call = getattr(report, "call", None)
    absent = _absent(call.excinfo.value) if report.failed and call and call.excinfo else None
    if absent is not None:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {absent}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield
    absent = _absent(call.excinfo.value) if report.failed and call.excinfo else None
    if absent is not None:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: {absent}")
    item.stash.setdefault(_reports, {})[report.when] = report
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        said = f"seed {seed_of(item.nodeid)} (READER_TEST_SEED={RUN_SEED})"
        report.sections.append(("seed", said))
    return report


# Spare processes that a cluster keeps; and agents that an older Ray leaves a while on a node that
# was killed.
_OF_RAY = ("(ray::IDLE,", "/ray/dashboard/agent.py", "/ray/_private/runtime_env/agent/main.py")


def _left(before: Ledger) -> list[str]:
    """Return what was left behind; processes of a cluster of Ray are its own."""
    return [line for line in settle(before) if not any(each in line for each in _OF_RAY)]


@pytest.fixture(scope="session", autouse=True)
def _session_ledger(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the run that leaves a process or memory behind, also that of wider fixtures."""
    adopt_orphans()
    before = Ledger.take()
    yield
    if request.session.testsfailed:
        return
    left = [line for line in _left(before) if not line.startswith(("descriptor", "thread"))]
    if left:
        pytest.fail("left behind by the whole run:\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def _ledger(request: pytest.FixtureRequest, _session_ledger: None) -> Iterator[None]:
    """Fail the test that leaves anything behind after its end.

    A test that already failed is left alone: its traceback holds its frames, and so its batches.
    """
    _freeze_imported()
    before = Ledger.take()
    yield
    report = request.node.stash.get(_reports, {}).get("call")
    if report is None or not report.passed:
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        return
    left = _left(before)
    if left:
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)


_modules_frozen = 0


def _freeze_imported() -> None:
    """Keep garbage collections from visiting frameworks repeatedly, once one is imported."""
    global _modules_frozen
    if len(sys.modules) > _modules_frozen + 50:
        gc.collect()
        gc.freeze()
        _modules_frozen = len(sys.modules)


def seed_of(nodeid: str) -> int:
    """Return the seed of one test: its own, and the same in every run with the same run seed."""
    return zlib.crc32(f"{RUN_SEED} {nodeid}".encode())


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """This test's own seed; printed when the test fails, changed by READER_TEST_SEED."""
    return seed_of(request.node.nodeid)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A generator seeded with `seed`."""
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def opened_fonts() -> None:
    """Open the files of matplotlib's fonts, which it keeps open, before a test counts files."""
    from matplotlib.figure import Figure

    from tools.pictures.theme import drawn

    with drawn():
        figure = Figure()
        for weight in ("normal", "bold"):
            for family in ("sans-serif", ["DejaVu Sans", "sans-serif"]):
                figure.text(0, 0, "a", fontweight=weight, fontfamily=family)
        for form in ("svg", "png"):
            figure.savefig(io.BytesIO(), format=form)
