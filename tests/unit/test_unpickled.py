"""Nothing is unpickled from a disk, and no text of a file is run: the sources are searched."""

from __future__ import annotations

import ast
import pickle
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, RecordIO, TokenWindows
from tests.streams import RangeStream

ROOT = Path(__file__).parents[2]

# Functions that make objects, or code, of bytes.
_READS = re.compile(
    r"\b(?:pickle|_pickle|cloudpickle|dill|joblib|marshal|shelve|torch|paddle|jax|pd|pandas|yaml)"
    r"\.(?:loads?|unsafe_load|full_load|read_pickle|open|Unpickler)\b"
    r"|\b_?Unpickler\b"
    r"|\b(?:np|numpy)\.load\b"
    r"|\bfrom (?:pickle|cloudpickle|marshal|shelve|dill|joblib) import\b"
    r"|\b(?:import|from) (?:marshal|shelve|dill|joblib|yaml|dbm)\b"
    r"|(?<![\w.])(?:eval|exec)\("
    r"|\ballow_pickle\s*=\s*(?!False)"
    r"|\.read_pickle\("
)
WORKER = "a pipe, a socket or shared memory of a worker or trainer, which one started"
SHARED = "a memory file that this process or its parent made and sealed"
OWN = "what this process pickled itself"
CLUSTER = "an answer or object of the Ray cluster that the user named"
USER = "what the user asks for by name"

# Each place, how many lines it has, and where the bytes come from: never from a path.
ALLOWED: dict[str, tuple[int, str]] = {
    "cython_ext/reader/_core/batch/structure.pyx": (1, WORKER),
    "cython_ext/reader/_core/batch/tensor_array.pyx": (2, WORKER),
    "cython_ext/reader/_core/shared/values.pyx": (1, SHARED),
    "cython_ext/reader/_core/wire/channel.pyx": (3, WORKER),
    "cython_ext/reader/_core/wire/records.pyx": (6, WORKER),
    "reader/compat/gluon/nlp/dataset_loader.py": (1, WORKER),
    "reader/compat/gluon/nlp/prefetching_stream.py": (1, WORKER),
    "reader/compat/gluon/nlp/text_datasets.py": (1, USER),  # np.load, whose default is no pickles
    "reader/formats/token_file.py": (1, "numpy.load with allow_pickle=False"),
    "reader/engine/backends/inline.py": (1, OWN),
    "reader/engine/backends/process_pool.py": (1, WORKER),
    "reader/cluster/remote_worker.py": (1, CLUSTER),
    "reader/engine/backends/remote_processes.py": (1, CLUSTER),
    "reader/engine/worker_cursors.py": (1, WORKER),
    "reader/exceptions/exception_codec.py": (3, WORKER),
    "reader/exceptions/exception_values.py": (2, WORKER),
    "reader/observe/program.py": (1, USER),  # the script of `python -m reader profile`
    "reader/processes/pickling.py": (2, WORKER),
    "reader/processes/shared_process.py": (2, WORKER),
    "reader/processes/template.py": (1, WORKER),
    "reader/processes/template_process.py": (2, WORKER),
    "reader/shards/check_shards.py": (1, USER),  # with allow_pickle=True alone
    "reader/shards/commands.py": (4, USER),  # --allow-pickle
    "reader/shards/encoders.py": (1, WORKER),
    "reader/shards/formats/litdata_serializers.py": (2, USER),  # with allow_pickle=True alone
    "reader/shards/formats/mds_encodings.py": (2, USER),  # with allow_pickle=True alone
    "reader/sharing/shared_table.py": (1, SHARED),
    "reader/worker/worker_state.py": (1, WORKER),
}


def code_lines() -> Iterator[tuple[str, str]]:
    """Yield each line of the sources without docstrings and comments, with its file."""
    for top, ending in (("reader", "*.py"), ("cython_ext", "*.pyx"), ("cython_ext", "*.pxd")):
        for path in sorted((ROOT / top).rglob(ending)):
            text, name = path.read_text(), str(path.relative_to(ROOT))
            left_out: set[int] = set()
            if path.suffix == ".py":
                for node in ast.walk(ast.parse(text)):
                    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                        left_out |= set(range(node.lineno, (node.end_lineno or 0) + 1))
            for number, line in enumerate(text.splitlines(), 1):
                if number not in left_out:
                    yield name, line.partition("  # ")[0]


def test_only_the_listed_places_unpickle() -> None:
    """A new place needs a line above, which says where its bytes come from: never from a disk."""
    found = Counter(name for name, line in code_lines() if _READS.search(line))
    assert dict(found) == {name: count for name, (count, _) in ALLOWED.items()}


@pytest.mark.parametrize(
    "line",
    [
        "pickle.load(file)",
        "cloudpickle.loads(data)",
        "torch.load(path)",
        "paddle.load(path)",
        "np.load(path)",
        "class A(pickle.Unpickler):",
        "from pickle import loads",
        "import marshal",
        "x = eval(text)",
        "exec(code)",
        "numpy.load(path, allow_pickle=True)",
        "pd.read_pickle(path)",
        "yaml.unsafe_load(text)",
    ],
)
def test_the_search_finds_each_way_to_unpickle(line: str) -> None:
    assert _READS.search(line)


def test_no_place_that_opens_a_path_unpickles() -> None:
    """The files above open no path, except the name of a process."""
    opens = re.compile(r"(?<![\w.])open\(|\.open\(\"|os\.open\(|read_bytes\(|open_regular\(")
    files = {name for name, (_, origin) in ALLOWED.items() if origin in (WORKER, SHARED, OWN)}
    found = {(name, line.strip()) for name, line in code_lines() if name in files}
    assert sorted(
        (name, line) for name, line in found if opens.search(line) and "def open(" not in line
    ) == sorted(KNOWN_OPENS)


KNOWN_OPENS = [
    (  # the name of this process, as ps shows it
        "reader/processes/template_process.py",
        'with contextlib.suppress(OSError), Path("/proc/self/comm").open("w") as comm:',
    ),
]


class Owned:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_files_that_hold_pickles_run_nothing(tmp_path: Path) -> None:
    owned = tmp_path / "owned"
    array = np.array([Owned(owned)], object)
    np.save(tmp_path / "tokens.npy", array, allow_pickle=True)
    with pytest.raises(ConfigError, match="holds no plain integers, or is damaged"):
        TokenWindows(tmp_path / "tokens.npy", 1)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        from reader.compat.gluon.nlp import NumpyDataset

        NumpyDataset(tmp_path / "tokens.npy")
    with pytest.raises(ConfigError):
        RecordIO(tmp_path / "tokens.npy", index=tmp_path / "tokens.npy")
    assert not owned.exists()
    pickle.loads(pickle.dumps(Owned(owned)))
    assert owned.exists()  # the pickle would have made it


def test_a_state_of_a_loader_is_plain(tmp_path: Path) -> None:
    """A state is plain, so that JSON can hold it: loading unpickles no bytes."""
    import json

    import reader

    loader = reader.DataLoader(RangeStream(8), batch_size=2, num_workers=1, seed=1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    assert json.loads(json.dumps(state)) == state
    loader.close()


def test_a_pyarrow_that_unpickles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.setattr(pyarrow, "__version__", "14.0.0")
    with pytest.raises(ConfigError, match=r"pyarrow 14.0.0 unpickles .* install 14.0.1 or a newer"):
        __import__("reader").TableRows(pyarrow.table({"x": [1]}))
