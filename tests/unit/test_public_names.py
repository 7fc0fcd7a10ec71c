"""What `import reader` provides, and what it does not touch."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import reader
from reader.engine.face import engine_of

ROOT = Path(__file__).parents[2]
NAMES = """ArenaFull BalancedBatches BatchSampler BlockingQueue BucketBatchSampler ChainDataset
CollateError ComposeDataset ConcatDataset ConfigError ConfigTypeError DataLoader Dataset
DatasetError DistributedBatchSampler DistributedSampler Documents EvenSteps ImageError InternalError
IterableDataset LoDTensor LoDTensorArray LoadTimeout Mix MixSampler PackedTokens Padded QueueClosed
QueueKilled RaggedFields RandomSampler Ray ReaderError RecordIO RecordWriter SampleIndexError
Sampler SamplerError SequenceSampler ShardCache ShardOrder Shards StateError Subset
SubsetRandomSampler TableRows TensorDataset TokenWindows WeightedRandomSampler WorkerDied WorkerInfo
WorkerPool cache concat_ragged get_worker_info mix profile random_split rebatch register_container
sample_rng shard share shuffle_buffer without write_shards""".split()


def test_all_is_sorted_and_complete() -> None:
    assert list(reader.__all__) == sorted([*NAMES, "__version__"])


@pytest.mark.parametrize("name", NAMES)
def test_each_public_name_is_there_with_a_docstring_of_its_own(name: str) -> None:
    thing = getattr(reader, name)
    said = inspect.cleandoc(thing.__doc__ or "")
    assert said, f"{name} has no docstring"
    assert said.split("\n\n")[0].rstrip().endswith((".", ":")), f"{name}: {said.splitlines()[0]!r}"
    if inspect.isclass(thing):
        assert all(thing.__doc__ != base.__doc__ for base in thing.__mro__[1:])


@pytest.mark.parametrize("name", NAMES)
def test_each_public_name_says_that_it_lives_in_the_package(name: str) -> None:
    assert getattr(reader, name).__module__.split(".")[0] == "reader"


def test_every_error_is_a_reader_error() -> None:
    for name in NAMES:
        thing = getattr(reader, name)
        if inspect.isclass(thing) and issubclass(thing, BaseException):
            assert issubclass(thing, reader.ReaderError)
    assert issubclass(reader.ConfigError, ValueError)
    assert issubclass(reader.LoadTimeout, TimeoutError)


def in_a_fresh_process(program: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert (run.stdout, run.stderr) == ("", "")


def test_importing_reader_imports_no_framework() -> None:
    """Line 7 of what always holds."""
    in_a_fresh_process(
        "import sys, reader\n"
        "heavy = {'paddle', 'torch', 'jax', 'jaxlib', 'mxnet', 'tensorflow', 'cuda'}\n"
        "heavy |= {'PIL', 'simplejpeg', 'pyarrow', 'pandas'}  # of the extras\n"
        "found = heavy & {name.split('.')[0] for name in sys.modules}\n"
        "assert not found, found"
    )


def test_importing_reader_imports_only_the_modules_in_use() -> None:
    in_a_fresh_process(
        "import sys, reader\n"
        "assert not {'numpy', 'multiprocessing', 'reader.loader'} & set(sys.modules)\n"
        "reader.errors, reader.images, reader.collate, reader.data, reader.compat\n"
        "from reader import *\n"
        "assert 'numpy' in sys.modules and 'numpy.ma' not in sys.modules\n"
        "assert DataLoader is reader.DataLoader is vars(reader)['DataLoader']"
    )


def test_faces_and_integrations_are_imported_when_they_are_first_asked_for() -> None:
    in_a_fresh_process(
        "import sys, reader\n"
        "assert 'torch' not in sys.modules and 'mxnet' not in sys.modules\n"
        "assert reader.compat.gluon.DataLoader.__module__.startswith('reader.compat.gluon')\n"
        "assert 'torch' not in sys.modules\n"
        "reader.integrations.scalars.Scalars\n"
        "for room, name in ((reader.compat, 'tensorflow'), (reader.integrations, 'wandb')):\n"
        "    assert not hasattr(room, name)"
    )


def test_the_face_of_torch_is_installed_right_after_the_import_of_reader() -> None:
    pytest.importorskip("torch")
    in_a_fresh_process(
        "import reader\n"
        "reader.compat.torch.install()\n"
        "import torch.utils.data\n"
        "loader = torch.utils.data.DataLoader([1])\n"
        "assert type(loader) is reader.compat.torch.DataLoader"
    )


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'reader' has no attribute 'DataLoder'"):
        reader.DataLoder  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("system", ["darwin", "win32", "freebsd14"])
def test_importing_reader_on_another_system_says_what_is_missing_and_what_to_do(
    system: str,
) -> None:
    why = "reader needs Linux 5.9 or later, for memfd_create, pidfd_open and futexes"
    remedy = f"this system is {system!r}: run it in a Linux container or virtual machine"
    in_a_fresh_process(
        "import sys\n"
        f"sys.platform = {system!r}\n"
        "try:\n"
        "    import reader\n"
        "except ImportError as error:\n"
        "    said = str(error)\n"
        f"assert said.startswith({why!r}) and {remedy!r} in said, said\n"
        "assert 'reader._core' not in sys.modules"
    )


def test_importing_reader_leaves_the_process_alone() -> None:
    """Line 7 of what always holds: random state, signals, start method, environment."""
    in_a_fresh_process(
        "import multiprocessing, os, random, signal, threading, warnings\n"
        "import numpy as np\n"
        "def state():\n"
        "    return (random.getstate(), str(np.random.get_state()), dict(os.environ),\n"
        "            multiprocessing.get_start_method(allow_none=True), list(warnings.filters),\n"
        "            [signal.getsignal(n) for n in signal.valid_signals()], os.getcwd(),\n"
        "            threading.active_count(), sorted(os.listdir('/proc/self/fd')))\n"
        "before = state()\n"
        "import reader\n"
        "assert state() == before"
    )


def test_importing_reader_twice_over_threads_is_one_import() -> None:
    in_a_fresh_process(
        "import threading\n"
        "seen = []\n"
        "def load():\n"
        "    import reader\n"
        "    seen.append(reader.DataLoader)\n"
        "threads = [threading.Thread(target=load) for _ in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert len(seen) == 4 and len(set(seen)) == 1"
    )


def test_dir_shows_the_public_names_alone() -> None:
    assert dir(reader) == sorted(reader.__all__)
    assert reader.errors is sys.modules["reader.errors"]  # submodules are still found


@pytest.mark.parametrize("face", ["torch", "paddle"])
def test_dir_of_a_face_shows_its_public_names_alone(face: str) -> None:
    module = importlib.import_module(f"reader.compat.{face}")
    assert dir(module) == sorted(module.__all__)
    assert not {"annotations", "loader", "inner"} & set(dir(module))


def test_no_module_reads_the_engine_of_another_object() -> None:
    reaches = re.compile(r"(?<!\bself)\._engine\b")
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted((ROOT / "reader").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if reaches.search(line)
    ]
    assert found == []  # reader.engine.face.engine_of returns it


def test_the_engine_of_a_loader_is_that_of_its_newest_iterator() -> None:
    torch_loader = pytest.importorskip("reader.compat.torch").DataLoader([1, 2])
    assert engine_of(torch_loader) is None
    loader = reader.DataLoader([1, 2])
    for each in (loader, torch_loader):
        list(each)
        found = engine_of(each)
        assert found is not None
        assert found.times.count == 2
    assert {"engine", "engine_of"}.isdisjoint(dir(loader))
    assert {"engine", "engine_of"}.isdisjoint(dir(torch_loader))
