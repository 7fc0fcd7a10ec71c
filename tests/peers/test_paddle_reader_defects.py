"""Decorators of readers that hang, spin or leak in paddle.reader 3.3.1, and what we do instead.

Imports the harness and pytest; the stories run in processes of their own. Tests marked as
a demonstration show what paddle does wrong; the test after each shows what we do.
"""

from __future__ import annotations

import pytest

from tests.peers.program import HANG_S, Story, Verdict, demonstrated_by, proved_by

pytestmark = pytest.mark.peer

# In the stories the word paddle.io is replaced, which makes this the face's module.
HEAD = """
    import importlib, os, signal, sys, threading, time, warnings
    import numpy as np
    from tests.peers.inside import children, tell

    warnings.simplefilter("ignore")
    decorators = importlib.import_module("paddle.io".removesuffix(".io") + ".reader")

    def failing():
        yield 1
        raise KeyError("mine")

    def fail(item):
        raise KeyError("mine")

    def arrays():
        yield np.arange(2)
        yield np.arange(3)

    def outcome(reader):
        found = []
        try:
            for item in reader():
                found.append(item)
        except Exception as error:
            return [len(found), type(error).__name__]
        return [len(found), [type(item).__name__ for item in found]]
"""

BUFFERED_ERROR = Story(HEAD + "    tell(outcome(decorators.buffered(failing, 2)))\n")
READER_ERROR = Story(
    HEAD + "    tell(outcome(decorators.xmap_readers(lambda item: item, failing, 2, 2)))\n"
)
MAPPER_ERROR = Story(HEAD + "    tell(outcome(decorators.xmap_readers(fail, arrays, 2, 2)))\n")


@demonstrated_by(BUFFERED_ERROR, hang_s=HANG_S)
def test_paddle_hangs_on_an_error_of_a_buffered_reader(verdict: Verdict) -> None:
    assert verdict.is_hung


@proved_by(BUFFERED_ERROR)
def test_error_of_a_buffered_reader_arrives(verdict: Verdict) -> None:
    assert verdict.result == [1, "KeyError"]


@demonstrated_by(READER_ERROR, hang_s=HANG_S)
def test_paddle_hangs_on_an_error_of_the_reader_that_is_mapped(verdict: Verdict) -> None:
    assert verdict.is_hung


@proved_by(READER_ERROR)
def test_error_of_the_reader_that_is_mapped_arrives(verdict: Verdict) -> None:
    assert verdict.result == [1, "KeyError"]


@demonstrated_by(MAPPER_ERROR, hang_s=HANG_S)
def test_paddle_hangs_on_an_error_of_the_mapper(verdict: Verdict) -> None:
    assert verdict.is_hung


@proved_by(MAPPER_ERROR)
def test_error_of_the_mapper_arrives(verdict: Verdict) -> None:
    assert verdict.result == [0, "KeyError"]


BUFFERED_ARRAYS = Story(
    HEAD + "    tell(outcome(decorators.buffered(arrays, 2)))\n    os._exit(0)\n"
)


@demonstrated_by(BUFFERED_ARRAYS)
def test_paddle_takes_the_truth_value_of_buffered_arrays(verdict: Verdict) -> None:
    assert verdict.result == [0, "ValueError"]


@proved_by(BUFFERED_ARRAYS)
def test_arrays_are_buffered(verdict: Verdict) -> None:
    assert verdict.result == [2, ["ndarray", "ndarray"]]


SPIN = Story(
    HEAD
    + """
    def slow_first(item):
        if item == 0:
            time.sleep(2)
        return item

    begun = time.process_time()
    found = list(decorators.xmap_readers(slow_first, lambda: range(8), 4, 8, True)())
    tell([found, time.process_time() - begun])
    os._exit(0)
    """,
    limit_s=40,
)


@demonstrated_by(SPIN)
def test_paddle_spins_while_a_mapped_item_waits_for_its_turn(verdict: Verdict) -> None:
    found, busy_s = verdict.result
    assert found == list(range(8))
    assert busy_s > 0.3


@proved_by(SPIN)
def test_mapped_item_waits_for_its_turn_without_spinning(verdict: Verdict) -> None:
    found, busy_s = verdict.result
    assert found == list(range(8))
    assert busy_s < 0.3


LEFT = Story(
    HEAD
    + """
    def endless():
        while True:
            yield 1

    for decorated in (
        decorators.buffered(endless, 2),
        decorators.xmap_readers(lambda item: item, endless, 2, 2),
    ):
        for item in decorated():
            break
    time.sleep(0.2)
    tell(threading.active_count() - 1)
    os._exit(0)
    """
)


@demonstrated_by(LEFT)
def test_paddle_keeps_the_threads_of_generators_that_were_left(verdict: Verdict) -> None:
    assert verdict.result == 4


@proved_by(LEFT)
def test_threads_of_generators_that_were_left_end(verdict: Verdict) -> None:
    assert verdict.result == 0


PIPE = Story(
    HEAD
    + """
    def tuples():
        yield (1, 2)

    tell([
        outcome(decorators.multiprocess_reader([tuples])),
        outcome(decorators.multiprocess_reader([arrays])),
        outcome(decorators.multiprocess_reader([arrays], False)),
    ])
    os._exit(0)
    """,
    limit_s=40,
)


@demonstrated_by(PIPE)
def test_paddle_changes_tuples_and_refuses_arrays_of_processes(verdict: Verdict) -> None:
    assert verdict.result == [[1, ["list"]], [0, "ValueError"], [0, "ValueError"]]


@proved_by(PIPE)
def test_tuples_and_arrays_of_processes_stay_what_they_are(verdict: Verdict) -> None:
    arrays = [2, ["ndarray", "ndarray"]]
    assert verdict.result == [[1, ["tuple"]], arrays, arrays]


KILLED = Story(
    HEAD
    + """
    def deadly():
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)

    tell(outcome(decorators.multiprocess_reader([deadly])))
    """
)


@demonstrated_by(KILLED, hang_s=HANG_S)
def test_paddle_hangs_when_a_process_that_reads_dies(verdict: Verdict) -> None:
    assert verdict.is_hung


@proved_by(KILLED)
def test_death_of_a_process_that_reads_is_an_error(verdict: Verdict) -> None:
    count, kind = verdict.result
    assert (count in (0, 1), kind) == (True, "WorkerDied")


ABANDONED = Story(
    HEAD
    + """
    def endless():
        while True:
            yield 1

    for item in decorators.multiprocess_reader([endless, endless])():
        break
    time.sleep(1)
    tell(len(children()))
    """
)


@demonstrated_by(Story(ABANDONED.text.rstrip(" ") + "    os._exit(0)\n"))
def test_paddle_keeps_the_processes_of_a_generator_that_was_left(verdict: Verdict) -> None:
    assert verdict.result == 2


@proved_by(ABANDONED)
def test_processes_of_a_generator_that_was_left_end(verdict: Verdict) -> None:
    assert (verdict.result, verdict.left) == (0, [])


AT_EXIT = Story(
    HEAD
    + """
    def slowly():
        while True:
            yield 1

    kept = decorators.buffered(slowly, 2)()
    mapped = decorators.xmap_readers(lambda item: item, slowly, 2, 2)()
    processes = decorators.multiprocess_reader([slowly])()
    next(kept), next(mapped), next(processes)
    tell("bye")
    """
)


@proved_by(AT_EXIT)
def test_program_ends_with_generators_that_are_still_open(verdict: Verdict) -> None:
    assert (verdict.result, verdict.left) == ("bye", [])
    assert verdict.wall_s < 20
