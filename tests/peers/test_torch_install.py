"""`install()`: programs and libraries that construct PyTorch's loader get ours; `uninstall()`.

Imports pytest, torch and the torch face; Accelerate's, Lightning's and transformers' own programs
run in processes of their own, where nothing else is installed.
"""

from __future__ import annotations

import abc
import copy
import inspect
import json
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data as data
from torch.utils.data import DataLoader as Imported  # as libraries do, before anything else

import reader.compat.torch as face
from tests.peers.test_torch_programs import LIGHTNING, TORCH, run, script_of_accelerate

pytestmark = pytest.mark.peer
WORKERS = pytest.mark.parametrize("workers", [0, 2])


class Before(Imported[Any]):
    """A subclass that a library defines, and that calls `super().__init__`."""

    def __init__(self, *arguments: Any, mark: int = 3, **named: Any) -> None:
        self.mark = mark
        super().__init__(*arguments, **named)

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield batch + self.mark


class Direct(Imported[Any]):
    """A subclass that names its base."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        Imported.__init__(self, *arguments, **named)


class Wrapping(Imported[Any]):
    """A subclass that wraps the iterator, as PyG's loaders of graphs do."""

    def _get_iterator(self) -> Any:
        return map(list, super()._get_iterator())


class Abstract(abc.ABC):  # noqa: B024
    """The attributes of a subclass beside the loader's."""


class Mixed(Abstract, Imported[Any]):
    """A subclass whose metaclass is ABCMeta."""


class Final(Imported[Any]):
    """A subclass that allows none of its own."""

    def __init_subclass__(cls) -> None:
        raise TypeError("no subclasses")


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with face.install():
        yield


def values(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


@WORKERS
def test_pytorchs_class_makes_ours_by_whatever_name_it_was_imported(workers: int) -> None:
    for kind in (Imported, data.DataLoader, data.dataloader.DataLoader):
        made: Any = kind(range(6), 4, num_workers=workers)
        assert type(made) is face.DataLoader
        assert isinstance(made, data.DataLoader)
        assert values(made) == [[0, 1, 2, 3], [4, 5]]


@WORKERS
def test_subclasses_have_their_methods_and_our_engine(workers: int) -> None:
    class After(data.DataLoader[Any]):
        pass

    for kind in (Before, Direct, Mixed, After):
        made: Any = kind(range(4), 2, num_workers=workers)
        assert isinstance(made, kind)
        assert isinstance(made, face.DataLoader)
        assert type(made).__name__ == kind.__name__
        assert type(made) is type(kind(range(2)))
        added = 3 if kind is Before else 0
        assert values(made) == [[0 + added, 1 + added], [2 + added, 3 + added]]
        assert made.stats() is None or made.stats()["batches"] == 2


@pytest.mark.parametrize("persistent", [False, True])
def test_subclass_that_wraps_the_iterator_has_every_epoch(persistent: bool) -> None:
    made = Wrapping(range(4), 2, num_workers=1, persistent_workers=persistent)
    assert [list(made) for _ in range(2)] == [[[0, 1], [2, 3]]] * 2


def test_loaders_are_copied_and_pickled_as_what_they_are() -> None:
    made = Before(range(4), 2, mark=5)
    for again in (copy.copy(made), pickle.loads(pickle.dumps(made))):
        assert type(again) is type(made)
        assert (again.mark, values(again)) == (5, [[5, 6], [7, 8]])


def test_del_of_a_subclass_is_called_for_its_own_objects_alone() -> None:
    ended: list[int] = []

    class Closing(Imported[Any]):
        def __init__(self, data: Any, number: int) -> None:
            super().__init__(data)
            self.number = number

        def __del__(self) -> None:
            ended.append(self.number)

    with face.install():
        loaders = [Closing(range(2), number) for number in range(2)]
        assert all(isinstance(loader, face.DataLoader) for loader in loaders)
        assert ended == []
        del loaders[0]
        assert ended == [0]
        loaders.clear()
    assert ended == [0, 1]


def test_subclass_that_cannot_be_derived_from_warns_and_keeps_pytorchs_engine() -> None:
    with pytest.warns(UserWarning, match=r"Final is not served by reader.*no subclasses") as said:
        made = Final(range(4), 2)
    assert said[0].filename == __file__
    assert not isinstance(made, face.DataLoader)
    assert values(made) == [[0, 1], [2, 3]]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's
def test_torchdatas_loader_stays_its_own() -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    made: Any = StatefulDataLoader(range(4), 2)  # type: ignore[arg-type]
    assert type(made) is StatefulDataLoader
    assert values(made) == [[0, 1], [2, 3]]


def test_signature_and_arguments_are_pytorchs() -> None:
    shown = inspect.signature(data.DataLoader)
    with pytest.raises(ValueError, match="num_workers option should be non-negative"):
        data.DataLoader([1], num_workers=-1)
    face.uninstall()
    assert inspect.signature(data.DataLoader) == shown


def test_uninstalling_restores_all_and_our_loaders_stay_ours() -> None:
    before: Any = Before(range(4), 2, num_workers=1, persistent_workers=True)
    values(before)
    face.uninstall()
    face.uninstall()
    assert Imported.__init__.__module__ == "torch.utils.data.dataloader"
    assert type(Imported([1])) is Imported
    assert type(Before([1])) is Before
    assert values(before) == [[3, 4], [5, 6]]
    before.close()


def test_loaders_made_before_are_not_changed() -> None:
    face.uninstall()
    made = Before(range(4), 2)
    with face.install():
        assert type(made) is Before
        assert values(made) == [[3, 4], [5, 6]]


def test_context_within_another_leaves_it_installed() -> None:
    with face.install():
        pass
    assert type(Imported([1])) is face.DataLoader
    face.uninstall()
    with pytest.raises(KeyError), face.install():
        raise KeyError
    assert type(Imported([1])) is Imported


# argv: a script of Accelerate; prints how many epochs our loader had
SCRIPT = """
    import runpy, sys

    import accelerate.data_loader  # it has imported PyTorch's name
    import reader.compat.torch as face

    opened = []

    class Counted:
        def __iter__(self):
            opened.append(self.num_workers)
            return kept(self)

    kept = face.DataLoader.__iter__
    face.DataLoader.__iter__ = Counted.__iter__
    face.install()
    sys.argv[:] = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    print("epochs:", len(opened))
"""


@pytest.mark.evidence
@pytest.mark.timeout(120)
def test_script_that_accelerate_ships_passes_when_installed(tmp_path: Path) -> None:
    last = run(tmp_path, SCRIPT, script_of_accelerate("test_script.py"))
    noun, epochs = last.split()
    assert noun == "epochs:"
    assert int(epochs) > 20


# prints the classes of prepared loaders, and the warnings
PREPARED = """
    import json, sys, warnings
    from accelerate import Accelerator
    import reader.compat.torch as face
    from torch.utils.data import DataLoader

    accelerator, told = Accelerator(cpu=True), []

    def prepare(kind):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            made = accelerator.prepare(kind(range(10), 4, num_workers=1))
        told.append([type(made.base_dataloader).__module__, [each.tolist() for each in made]])
        told[-1].append([[str(each.message), each.filename] for each in said])

    prepare(face.DataLoader)
    prepare(face.DataLoader)
    prepare(DataLoader)
    with face.install():
        prepare(face.DataLoader)
        prepare(DataLoader)
    print(json.dumps(told))
"""


@pytest.mark.nightly
def test_loader_of_ours_inside_accelerate_says_once_that_it_was_replaced(tmp_path: Path) -> None:
    told = json.loads(run(tmp_path, PREPARED))
    batches = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [each[1] for each in told] == [batches] * 5
    ours, torchs = "reader.compat.torch.loader", "torch.utils.data.dataloader"
    assert [each[0] for each in told] == [torchs, torchs, torchs, ours, ours]
    [[text, place]] = told[0][2]
    assert "Accelerate replaces this DataLoader of reader with a loader of PyTorch" in text
    assert "reader.compat.torch.install()" in text
    assert Path(place).name == "program.py"
    assert [each[2] for each in told[1:]] == [[]] * 4


@pytest.mark.evidence
@pytest.mark.timeout(240)
def test_lightning_trains_the_same_when_installed(tmp_path: Path) -> None:
    install = "import reader.compat.torch\n    reader.compat.torch.install()\n"
    ours = run(tmp_path, f"\n    {install}{LIGHTNING}", TORCH, "2")
    assert json.loads(ours) == json.loads(run(tmp_path, LIGHTNING, TORCH, "2"))


# argv: "installed" or not; prints the batches of the Trainer's model, and the loader's origin
TRAINER = """
    import contextlib, json, sys
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
    import reader.compat.torch as face

    class Config(PretrainedConfig):
        model_type = "toy"

    class Model(PreTrainedModel):
        config_class = Config

        def __init__(self, config):
            super().__init__(config)
            self.layer = torch.nn.Linear(4, 1)
            self.seen = []
            self.post_init()

        def forward(self, x=None, labels=None):
            self.seen.append(x.sum().item())
            made = self.layer(x)[:, 0]
            return {"loss": ((made - labels) ** 2).mean(), "logits": made}

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return {"x": torch.full((4,), float(index)), "labels": torch.tensor(0.0)}

    def main():
        torch.manual_seed(0)
        model = Model(Config())
        arguments = TrainingArguments(
            "out", num_train_epochs=2, per_device_train_batch_size=8, dataloader_num_workers=2,
            report_to=[], use_cpu=True, save_strategy="no", logging_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(model, arguments, train_dataset=Rows(), eval_dataset=Rows())
        kind = type(trainer.get_train_dataloader().base_dataloader).__module__
        trainer.train()
        trainer.evaluate()
        trainer.predict(Rows())
        print(json.dumps([kind, model.seen, model.layer.weight.tolist()]))

    with face.install() if sys.argv[1] == "installed" else contextlib.nullcontext():
        main()
"""


@pytest.mark.timeout(240)
def test_trainer_of_transformers_trains_the_same_when_installed(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    torchs = json.loads(run(tmp_path, TRAINER, "left alone"))
    ours = json.loads(run(tmp_path, TRAINER, "installed"))
    assert (torchs[0], ours[0]) == ("torch.utils.data.dataloader", "reader.compat.torch.loader")
    assert ours[1:] == torchs[1:]


def test_no_warning_for_a_loader_that_no_library_replaces() -> None:
    face.uninstall()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made: Any = face.DataLoader(range(4), multiprocessing_context="fork", num_workers=1)
        assert made.multiprocessing_context.get_start_method() == "fork"
        made.multiprocessing_context = None
        assert made.multiprocessing_context is None
