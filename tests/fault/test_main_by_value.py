"""A main module that workers cannot import: a notebook, the prompt, stdin, `-c`, `-m package`.

Objects that the dataset uses travel with their code, and results are of the trainer's own
classes. Each program below checks many things with the workers of each start method.
"""

from __future__ import annotations

import ast
import os
import pty
import subprocess
import sys
import termios
import textwrap
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reader import ConfigError, DataLoader
from reader.processes import main_module
from reader.processes.pickling import NotFound, not_found
from tests.processes import BOUND_S, ROOT, Program

Start = Callable[..., Program]

DEFINITIONS = """
    import abc, dataclasses, enum, functools, math as mathematics, typing, warnings
    import os.path
    import numpy as np
    from reader import DataLoader, Dataset, IterableDataset, get_worker_info
    warnings.filterwarnings("ignore", category=DeprecationWarning)

    SCALE = 10

    @dataclasses.dataclass
    class Point:
        x: int

    class Pair(typing.NamedTuple):
        a: int
        b: int

    class Color(enum.Enum):
        RED = 1

    class Slotted:
        __slots__ = ("value", "__own")

        def __init__(self, value):
            self.value = self.__own = value

        def sum(self):
            return self.value + self.__own

    class Outer:
        class Inner:
            def __init__(self, value):
                self.value = value

    class MyError(Exception):
        def __init__(self, point):
            super().__init__(f"at {point}")
            self.point = point

    class SubError(MyError):
        pass

    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n > 0 and even(n - 1)

    def scaled(i):
        return mathematics.floor(i * SCALE)

    @functools.lru_cache(maxsize=5)
    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    def remember(worker):
        global OPENED
        OPENED = worker

    class Base(Dataset):
        @abc.abstractmethod
        def one(self, i): ...

        def __len__(self):
            return 4

        def __getitem__(self, i):
            return self.one(i)

    class Samples(Base):
        def __init__(self):
            super().__init__()
            self.kept = [Point(7), Outer.Inner(8)]

        @functools.cached_property
        def offset(self):
            return 5

        def one(self, i):
            assert get_worker_info().id == OPENED
            assert even(4) and os.path.isabs("/x") and fibonacci(10) == 55 and self.offset == 5
            if i == 3:
                raise SubError(Point(i)) from KeyError(Color.RED)
            return {
                "number": np.full(2, scaled(i)), "point": Point(i), "pair": Pair(i, i),
                "color": Color.RED, "slots": Slotted(i), "inner": self.kept[1], "lambda": 0,
            }

        def __getitem__(self, i):
            return {**super().__getitem__(i), "own": self.kept[0]}

        def collate(self, samples):
            return samples

    def check(batch, i):
        (sample,) = batch
        assert sample["number"].tolist() == [SCALE * i] * 2, sample
        assert type(sample["point"]) is Point and sample["point"].x == i
        assert type(sample["pair"]) is Pair and sample["color"] is Color.RED
        assert type(sample["slots"]) is Slotted and sample["slots"].sum() == 2 * i
        assert type(sample["inner"]) is Outer.Inner and sample["inner"].value == 8
        assert sample["own"] == Point(7)

    def run(method, workers):
        samples = Samples()
        kept = [samples.collate, lambda batch: batch, functools.partial(Samples.collate, samples)]
        collate = kept[workers % 3]
        options = {"num_workers": workers, "start_method": method, "collate_fn": collate}
        with DataLoader(samples, **options, worker_init_fn=remember) as loader:
            batches = iter(loader)
            for i in range(3):
                check(next(batches), i)
            try:
                next(batches)
            except MyError as error:
                assert type(error) is SubError and error.point == Point(3)
                assert error.__cause__.args[0] is Color.RED
                print(method, workers, "fine")
"""

RUN = """
    if __name__ == "__main__":
        for method, workers in {runs!r}:
            run(method, workers)
"""

RUNS = {
    "-c": [("fork", 2), ("spawn", 2), ("forkserver", 2), ("spawn", 1)],
    "stdin": [("fork", 2), ("spawn", 2), ("forkserver", 1)],
    "prompt": [("fork", 2), ("spawn", 2), ("forkserver", 1)],
    "-m package": [("spawn", 2), ("forkserver", 1)],
}


def text_of(way: str) -> str:
    return textwrap.dedent(DEFINITIONS) + textwrap.dedent(RUN).format(runs=RUNS[way])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["-c", "stdin", "-m package"])
def test_classes_of_main_travel_by_value(tmp_path: Path, way: str) -> None:
    text = text_of(way)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "__main__.py").write_text(text)
    arguments = {"-c": ["-c", text], "stdin": ["-"], "-m package": ["-m", "work"]}[way]
    run = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"},
        input=text if way == "stdin" else "",
        capture_output=True,
        text=True,
        timeout=BOUND_S,
    )
    assert (run.stderr, run.returncode) == ("", 0)
    assert run.stdout.splitlines() == [f"{method} {n} fine" for method, n in RUNS[way]]


def test_classes_typed_at_the_prompt_travel_by_value(tmp_path: Path) -> None:
    typed = ""
    for statement in ast.parse(text_of("prompt")).body:
        lines = [line for line in ast.unparse(statement).splitlines() if line.strip()]
        typed += "\n".join(lines) + ("\n\n" if len(lines) > 1 else "\n")
    ours, theirs = pty.openpty()
    settings = termios.tcgetattr(theirs)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, settings)
    process = subprocess.Popen(
        [sys.executable, "-i", "-q", "-W", "error"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHON_BASIC_REPL": "1"},
    )
    os.close(theirs)
    typing = threading.Thread(target=lambda: os.write(ours, typed.encode() + b"\n\x04"))
    typing.start()
    try:
        out = process.communicate(timeout=BOUND_S)[0].decode()
    finally:
        process.kill()
        process.wait()
        typing.join()
        os.close(ours)
    said = [line.rpartition(">")[2].rpartition(". ")[2].strip() for line in out.splitlines()]
    fine = [line for line in said if line.endswith("fine")]
    assert fine == [f"{method} {n} fine" for method, n in RUNS["prompt"]], out


# Cells are run as IPython does it: in a module that takes the place of `__main__`.
NOTEBOOK = """
    import sys, types
    main = sys.modules["__main__"]
    notebook = types.ModuleType("__main__")
    sys.modules["__main__"] = notebook
    for number, cell in enumerate(sys.argv[1:]):
        exec(compile(cell, f"<cell {number}>", "exec"), vars(notebook))
"""

CELLS = (
    """
    from multiprocessing import set_start_method
    set_start_method("spawn")
    import dataclasses
    from reader import DataLoader, Dataset, IterableDataset

    FACTOR = 1

    class Numbers(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return FACTOR * (i + 1)

    kept = Numbers()
    first = DataLoader(kept, batch_size=2, num_workers=2, persistent_workers=True)
    assert [batch.tolist() for batch in first] == [[1, 2]]
    """,
    """
    FACTOR = 10

    class Numbers(Numbers):
        def __getitem__(self, i):
            return -super().__getitem__(i)

    second = DataLoader(Numbers(), batch_size=2, num_workers=2, persistent_workers=True)
    assert [batch.tolist() for batch in second] == [[-10, -20]]
    assert [batch.tolist() for batch in first] == [[1, 2]]  # persistent workers keep what they got
    with DataLoader(kept, batch_size=2, num_workers=1) as loader:
        assert [batch.tolist() for batch in loader] == [[10, 20]]
    assert [batch.tolist() for batch in second] == [[-10, -20]]
    first.close()
    second.close()
    """,
    """
    @dataclasses.dataclass
    class Place:
        at: int

    class Stream(IterableDataset):
        place = Place(0)

        def state_dict(self):
            return {"place": self.place}

        def load_state_dict(self, state):
            assert type(state["place"]) is Place
            self.place = state["place"]

        def __iter__(self):
            while self.place.at < 6:
                self.place = Place(self.place.at + 1)
                yield self.place.at

    def stream():
        return DataLoader(Stream(), batch_size=2, num_workers=1)

    with stream() as loader:
        assert next(iter(loader)).tolist() == [1, 2]
        state = loader.state_dict()
    with stream() as loader:
        loader.load_state_dict(state)
        assert [batch.tolist() for batch in loader] == [[3, 4], [5, 6]]
    """,
    """
    import enum
    from reader import DatasetError

    class Key(enum.Enum):
        FIRST = 1

    class ByKey(Numbers):
        def __getitem__(self, key):
            return key.value

    try:
        list(DataLoader(ByKey(), sampler=[Key.FIRST], num_workers=1))
    except DatasetError as error:
        assert "workers have only what the dataset uses" in str(error), error
        print("fine")
    """,
)


def test_later_cells_of_a_notebook_define_classes_anew(program: Start) -> None:
    cells = [textwrap.dedent(cell) for cell in CELLS]
    assert program(NOTEBOOK, *cells).finish() == (0, "fine\n", "")


SCRIPT = """
    from reader import ConfigError, DataLoader

    class Own:
        pass

    class Names:
        def __len__(self):
            return 1

        def __getitem__(self, i):
            return [Own(), __name__]

    if __name__ == "__main__":
        class Guarded(Names):
            pass

        options = {"num_workers": 1, "start_method": "spawn"}
        with DataLoader(Names(), **options) as loader:
            ((own, name),) = loader
            print(type(own[0]) is Own, name)
        with DataLoader(Names(), **options, collate_fn=lambda samples: samples) as loader:
            (((own, name),),) = loader
            print(type(own) is Own)
        try:
            list(DataLoader(Guarded(), **options))
        except ConfigError as error:
            print(error)
"""


def test_classes_of_a_script_stay_by_reference(program: Start) -> None:
    status, out, err = program(SCRIPT).finish()
    assert (status, err) == (0, "")
    by_name, by_value, guarded = out.splitlines()
    assert (by_name, by_value) == ("True ['__mp_main__']", "True")
    assert "cannot find __main__.Guarded" in guarded
    assert 'define it above `if __name__ == "__main__":`' in guarded


MODULE = """
class Numbers:
    def __len__(self):
        return 1

    def __getitem__(self, i):
        return i
"""


@pytest.mark.parametrize("has_file", [False, True])
def test_class_of_a_module_that_no_worker_can_import_is_reported_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_file: bool
) -> None:
    module: Any = types.ModuleType("made_here")
    exec(MODULE, vars(module))
    monkeypatch.setitem(sys.modules, "made_here", module)
    why = "module made_here was made at run time and has no file. .* put it into a file"
    if has_file:
        module.__file__ = str(tmp_path / "made_here.py")
        why = (
            f"the file of module made_here, {module.__file__}, does not exist any more. .* keep it"
        )
    with (
        DataLoader([[module.Numbers()]], num_workers=1, start_method="spawn") as loader,
        pytest.raises(ConfigError, match=f"cannot find made_here.Numbers, .*: {why}") as caught,
    ):
        list(loader)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A main module that has no file."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return main


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "def use(i):\n    return lock\ndef collate(samples):\n    return use(0)",
            "global 'lock', which use uses",
        ),
        (
            "collate = (lambda lock: lambda samples: lock)(lock)",
            "variable 'lock', which <lambda>.<locals>.<lambda> uses",
        ),
        (
            "class Guard:\n    own = lock\ndef collate(samples):\n    return Guard()",
            "attribute 'own', which Guard uses",
        ),
        (
            "class Collate:\n    __call__ = len\ncollate = Collate()\ncollate.held = lock",
            "attribute 'held'",
        ),
    ],
)
def test_variable_that_cannot_travel_is_named(notebook: Any, text: str, why: str) -> None:
    notebook.lock = threading.Lock()
    exec(text, vars(notebook))
    loader = DataLoader([1], num_workers=1, start_method="spawn", collate_fn=notebook.collate)
    why = rf"cannot pickle '_thread.lock' object \(the {why}\)\. Open"
    with pytest.raises(ConfigError, match=rf"the collate_fn, <.*, cannot be sent .*: {why}"):
        iter(loader)


@pytest.mark.nightly
def test_torch_datasets_of_a_notebook_reach_workers_of_the_torch_face(notebook: Any) -> None:
    import torch

    import reader.compat.torch

    class Numbers(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> Any:
            return torch.tensor(i), Point(i)

    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    exec("def collate(samples):\n    return samples", vars(notebook))
    for kind in (Numbers, Point):
        kind.__module__, kind.__qualname__ = "__main__", kind.__name__
        setattr(notebook, kind.__name__, kind)
    loader = reader.compat.torch.DataLoader(
        Numbers(), 2, num_workers=1, multiprocessing_context="spawn", collate_fn=notebook.collate
    )
    (batch,) = loader
    assert [(tensor.item(), type(point), point.x) for tensor, point in batch] == [
        (0, Point, 0),
        (1, Point, 1),
    ]


def test_code_that_a_worker_cannot_import_is_reported_with_the_remedy(notebook: Any) -> None:
    text = str(not_found(NotFound("__main__", "Name")))
    assert "the main module is not a file that they can import" in text
    assert "define it in a module of its own, or use start_method='fork'" in text
    error = NotFound("reader", "nothing")
    error.__cause__ = AttributeError("no nothing")
    made = not_found(error)
    assert "importing reader there raised AttributeError('no nothing')" in str(made)
    assert made.__cause__ is error.__cause__


def test_main_module_is_imported_by_the_rules_of_multiprocessing(
    notebook: Any, tmp_path: Path
) -> None:
    def imported_and_lost() -> tuple[bool, bool]:
        return main_module.is_imported(), main_module.has_lost_file()

    assert imported_and_lost() == (False, False)
    notebook.__file__ = "<stdin>"
    assert imported_and_lost() == (False, True)
    notebook.__file__ = __file__
    assert imported_and_lost() == (True, False)
    for name, is_imported in (("work", True), ("work.__main__", False), ("__main__", False)):
        notebook.__spec__ = types.SimpleNamespace(name=name)
        assert imported_and_lost() == (is_imported, False)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_script_without_a_main_guard_is_refused_with_the_remedy(
    tmp_path: Path, method: str
) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import reader\n"
        "loader = reader.DataLoader(list(range(8)), batch_size=2, num_workers=1,\n"
        f"    start_method={method!r})\n"
        "print(sum(len(batch) for batch in loader))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1
    assert "WorkerDied: worker 0" in done.stderr
    assert "exit code 1 before it was ready" in done.stderr
    assert 'below `if __name__ == "__main__":`' in done.stderr
