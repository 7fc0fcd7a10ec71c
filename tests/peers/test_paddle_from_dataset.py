"""from_dataset: Paddle's text pipeline, with real files, and an end to it wherever a loop ends.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Story, Verdict, compares, demonstrated_by, proved_by
from tests.peers.test_paddle_generator import HEAD

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

FILES = """
    import contextlib
    paddle.enable_static()

    def write(*counts):
        names = []
        for number, count in enumerate(counts):
            names.append(os.path.abspath(f"part{number}.txt"))
            with open(names[-1], "w") as file:
                for row in range(count):
                    value = 1000 * number + row
                    file.write(f"3 {value} {value} {value} 1 {row % 3}\\n")
        return names

    def dataset(names, places=1, kind="QueueDataset"):
        made = getattr(paddle.distributed, kind)()
        made.init(batch_size=4, thread_num=places, pipe_command="cat", use_var=inputs())
        made.set_filelist(names)
        if kind == "InMemoryDataset":
            made.load_into_memory()
        return made

    def rows(loader):
        return [[np.array(feed["x"])[:, 0].tolist() for feed in batch] for batch in loader]
"""


def story(text: str, **options: object) -> Story:
    return Story(HEAD + FILES + text, **options)  # type: ignore[arg-type]


YIELDS = story(
    """
    found = []
    for old_ir in (False, True):
        guard = paddle.pir_utils.OldIrGuard() if old_ir else contextlib.nullcontext()
        with guard:
            for kind in ("QueueDataset", "InMemoryDataset"):
                for drop_last in (True, False):
                    program = paddle.static.Program()
                    with paddle.static.program_guard(program):
                        made = dataset(write(10, 12), 1, kind)
                        loader = DataLoader.from_dataset(made, [CPU], drop_last)
                        assert loader() is loader
                        for batch in loader:
                            pass
                        for _ in range(2):
                            found.append([plain(batch) for batch in loader()])
    tell(found)
    """
)


@compares(YIELDS)
def test_files_are_read_to_the_same_batches(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert len(ours.result) == 16
    assert ours.result == theirs.result
    assert ours.left == []


PLACES = story(
    """
    found = []
    made = dataset(write(12, 12), 2)
    for drop_last in (True, False):
        loader = DataLoader.from_dataset(made, [CPU, CPU], drop_last)
        for _ in range(2):
            found.append(sorted(part for step in rows(loader) for part in step))
    tell(found)
    """
)


@compares(PLACES)
def test_places_read_files_of_their_own(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert ours.result == theirs.result
    assert [len(parts) for parts in ours.result] == [6] * 4


REFUSALS = story(
    """
    names = write(4)
    made = dataset(names)
    found = [
        outcome(lambda: DataLoader.from_dataset([1, 2], [CPU])),
        outcome(lambda: DataLoader.from_dataset(made, [CPU, CPU])),
    ]
    paddle.disable_static()
    found.append(outcome(lambda: DataLoader.from_dataset(made, [CPU])))
    tell(found)
    """
)


@compares(REFUSALS)
def test_refusals_have_the_same_types_and_begin_with_the_same_texts(
    both: tuple[Verdict, Verdict],
) -> None:
    for theirs, ours in zip(both[0].result, both[1].result, strict=True):
        assert ours[0] == theirs[0] == "raised"
        assert theirs[1] == "AssertionError"
        assert "AssertionError" in ours[3]
        assert ours[2].startswith(theirs[2]), (theirs, ours)


BREAK = story(
    """
    loader = DataLoader.from_dataset(dataset(write(8000)), [CPU])
    for batch in loader:
        break
    tell(len(rows(loader)))
    for batch in loader:
        break
    """
)


@demonstrated_by(BREAK, hang_s=8.0)
def test_paddle_hangs_or_crashes_after_a_break(verdict: Verdict) -> None:
    assert verdict.is_hung or verdict.exit_code != 0, verdict.story()
    assert "2000" not in verdict.lines


@proved_by(BREAK)
def test_break_another_epoch_and_the_end_of_the_program_never_hang(
    verdict: Verdict,
) -> None:
    assert verdict.result == 2000
    assert verdict.left == []


LEAVE = story(
    """
    loader = DataLoader.from_dataset(dataset(write(8000)), [CPU])
    for batch in loader:
        break
    del loader
    tell("left")
    """
)


@demonstrated_by(LEAVE, hang_s=8.0)
def test_paddle_hangs_or_crashes_when_a_loader_is_dropped_after_a_break(
    verdict: Verdict,
) -> None:
    assert verdict.is_hung or verdict.exit_code != 0, verdict.story()


@proved_by(LEAVE)
def test_loader_that_is_dropped_after_a_break_ends_its_threads(verdict: Verdict) -> None:
    assert verdict.result == "left"


MISSING = story(
    """
    names = write(8)
    tell(outcome(lambda: rows(DataLoader.from_dataset(dataset(["nowhere.txt", *names]), [CPU]))))
    """
)


@demonstrated_by(MISSING)
def test_paddle_leaves_out_a_file_that_does_not_exist(verdict: Verdict) -> None:
    assert verdict.result[0] == "returned", verdict.story()


@proved_by(MISSING)
def test_file_that_does_not_exist_is_an_error(verdict: Verdict) -> None:
    assert verdict.result[:2] == ["raised", "ConfigError"]
    assert "'nowhere.txt', which does not exist" in verdict.result[2]


TRAINING = story(
    """
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x, y = inputs()
        weight = paddle.ParamAttr(initializer=paddle.nn.initializer.Constant(0.1))
        hidden = paddle.static.nn.fc(x, 4, weight_attr=weight)
        loss = paddle.mean((hidden - paddle.cast(y, "float32")) ** 2)
        paddle.optimizer.SGD(0.0001).minimize(loss)
    made = paddle.distributed.InMemoryDataset()
    made.init(batch_size=4, thread_num=1, pipe_command="cat", use_var=[x, y])
    made.set_filelist(write(22))
    made.load_into_memory()
    exe = paddle.static.Executor(CPU)
    exe.run(startup)
    found = []
    loader = DataLoader.from_dataset(made, [CPU], False)
    for _ in range(3):
        for data in loader():
            found.append(float(exe.run(main, feed=data, fetch_list=[loss])[0]))
    tell(found)
    """
)


@compares(TRAINING)
def test_programs_fed_from_files_train_to_the_same_losses(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert len(ours.result) == 18
    assert ours.result == theirs.result
