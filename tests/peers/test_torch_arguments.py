"""Arguments and attributes that PyTorch's loader refuses, accepts and shows, and ours.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
from typing import Any

import pytest
import torch
import torch.utils.data as data

import reader.compat.torch as ours
from tests.names import shown
from tests.peers.torch_parity import both, check_same, check_same_error
from tests.peers.torch_samples import Rows, Stream

pytestmark = pytest.mark.peer
ROWS, STREAM = Rows(6), Stream(3)
Plain: Any = ours.DataLoader
LOADERS = pytest.mark.parametrize(
    "loader", [data.DataLoader, ours.DataLoader], ids=["theirs", "ours"]
)


def test_signature_is_pytorchs_with_some_arguments_more() -> None:
    theirs = list(inspect.signature(data.DataLoader.__init__).parameters.values())
    own = list(inspect.signature(ours.DataLoader.__init__).parameters.values())
    assert [(each.name, each.kind, each.default) for each in own[: len(theirs)]] == [
        (each.name, each.kind, each.default) for each in theirs
    ]
    more = own[len(theirs) :]
    names = "seed reseed worker_type worker_retries prefetch_next_epoch max_bytes device pin_limit"
    names += " on_error error_budget quarantine warn_after hang_after pool backend"
    assert [each.name for each in more] == names.split()
    assert {each.kind for each in more} == {inspect.Parameter.KEYWORD_ONLY}


MEANT = [
    ({"num_worker": 2}, "did you mean num_workers?"),
    ({"batchsize": 2}, "did you mean batch_size?"),
    ({"workertype": "thread"}, "did you mean worker_type?"),
    ({"start_method": "spawn"}, 'pass multiprocessing_context="fork", "forkserver" or "spawn"'),
    ({"workers": 2}, "pass num_workers="),
    ({"places": "cpu"}, "it is an argument of reader.DataLoader; use that with framework='torch'"),
    ({"quux": 2}, "the arguments are dataset, batch_size, shuffle, sampler"),
]


@pytest.mark.parametrize("kind", [ours.DataLoader, ours.StatefulDataLoader])
@pytest.mark.parametrize(("options", "text"), MEANT, ids=lambda each: shown(each)[:20])
def test_unknown_argument_suggests_the_nearest_name(
    kind: Any, options: dict[str, Any], text: str
) -> None:
    (name,) = options
    words = f"{kind.__name__}.__init__() got an unexpected keyword argument {name!r}: "
    with pytest.raises(TypeError) as caught:
        kind(ROWS, **options)
    assert str(caught.value).startswith(words + text)


def test_argument_of_the_stateful_loader_alone_names_it() -> None:
    with pytest.raises(TypeError, match="it is an argument of StatefulDataLoader"):
        ours.DataLoader(ROWS, snapshot_every_n_steps=1)  # type: ignore[call-arg]
    assert ours.StatefulDataLoader(ROWS, snapshot_every_n_steps=3).snapshot_every_n_steps == 3


def test_unknown_argument_says_so_where_pytorchs_class_is_served() -> None:
    with ours.install(), pytest.raises(TypeError, match=r"did you mean num_workers\?"):
        data.DataLoader(ROWS, num_worker=2)  # type: ignore[call-arg]


class Passes(ours.DataLoader[int]):
    """Passes unknown arguments on, as loaders of libraries do."""

    def __init__(self, dataset: Any, extra: int, **options: Any) -> None:
        super().__init__(dataset, **options)
        self.extra = extra


def test_unknown_argument_of_a_subclass_is_named_and_the_subclass_is_pickled() -> None:
    with pytest.raises(TypeError, match=r"'batch': did you mean batch_size\?"):
        Passes(ROWS, extra=1, batch=2)
    copied = pickle.loads(pickle.dumps(Passes(ROWS, 5, batch_size=3)))
    assert (copied.extra, copied.batch_size, len(copied)) == (5, 3, 2)


def test_argument_names_are_read_as_pytorchs_are() -> None:
    theirs, own = (inspect.getfullargspec(kind.__init__) for kind in (data.DataLoader, Plain))
    assert own.args == theirs.args
    assert own.varkw is None
    assert own.kwonlyargs[: len(theirs.kwonlyargs)] == theirs.kwonlyargs
    names = ("dataset", "batch_size")
    for kind in (data.DataLoader, Plain):
        with pytest.raises(TypeError, match=r"__init__\(\) got multiple values for argument"):
            kind(ROWS, 2, **dict.fromkeys(names, ROWS))


def test_positional_arguments_mean_the_same() -> None:
    def act(loader: Any) -> Any:
        own = torch.Generator()
        made = loader(ROWS, 3, False, None, None, 1, len, True, True, 9, print, "forkserver", own)
        names = "batch_size num_workers collate_fn pin_memory drop_last timeout worker_init_fn"
        shown = [getattr(made, name) for name in names.split()]
        return [*shown, made.multiprocessing_context.get_start_method(), made.generator is own]

    check_same(act)


def test_every_name_of_torch_utils_data_is_here() -> None:
    assert [name for name in data.__all__ if not hasattr(ours, name)] == []
    assert all(
        getattr(ours, name) is getattr(data, name) for name in data.__all__ if name != "DataLoader"
    )
    assert issubclass(ours.DataLoader, data.DataLoader)
    with pytest.raises(AttributeError, match="no attribute 'DataLader'"):
        _ = ours.DataLader


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 0}, "batch_size should be a positive integer value, but got batch_size=0"),
    ({"batch_size": -2}, "batch_size should be a positive integer value, but got batch_size=-2"),
    ({"batch_size": True}, "batch_size should be a positive integer value, but got batch_size"),
    ({"batch_size": 2.0}, "batch_size should be a positive integer value, but got batch_size=2.0"),
    ({"batch_size": "2"}, "batch_size should be a positive integer value, but got batch_size=2"),
    ({"shuffle": True, "sampler": [1]}, "sampler option is mutually exclusive with shuffle"),
    (
        {"dataset": STREAM, "shuffle": True},
        "expected unspecified shuffle option, but got shuffle=True",
    ),
    (
        {"dataset": STREAM, "sampler": [1]},
        "expected unspecified sampler option, but got sampler=[1]",
    ),
    (
        {"dataset": STREAM, "batch_sampler": [[1]]},
        "DataLoader with IterableDataset: expected unspecified batch_sampler option, but got",
    ),
    *(
        (
            {"batch_sampler": [[1]], **more},
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler,",
        )
        for more in ({"batch_size": 2}, {"shuffle": True}, {"sampler": [1]}, {"drop_last": True})
    ),
    ({"num_workers": -1}, "num_workers option should be non-negative; use num_workers=0"),
    ({"timeout": -1}, "timeout option should be non-negative"),
    (
        {"prefetch_factor": 2},
        "prefetch_factor option could only be specified in multiprocessing.",
    ),
    ({"num_workers": 1, "prefetch_factor": -1}, "prefetch_factor option should be non-negative"),
    ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
    (
        {"batch_size": None, "drop_last": True},
        "batch_size=None option disables auto-batching and is mutually exclusive with drop_last",
    ),
    ({"drop_last": 1}, "drop_last should be a boolean value, but got drop_last=1"),
    ({"drop_last": "no"}, "drop_last should be a boolean value, but got drop_last=no"),
    (
        {"num_workers": 1, "multiprocessing_context": "bad"},
        "multiprocessing_context option should specify a valid start method in",
    ),
    (
        {"num_workers": 1, "multiprocessing_context": object()},
        "should be a valid context object or a string specifying the start method, but got",
    ),
    (
        {"multiprocessing_context": "fork"},
        "can only be used with multi-process loading (num_workers > 0), but got num_workers=0",
    ),
    (
        {"multiprocessing_context": multiprocessing.get_context("spawn")},
        "multiprocessing_context can only be used with multi-process loading",
    ),
    (
        {"dataset": [], "shuffle": True},
        "num_samples should be a positive integer value, but got num_samples=0",
    ),
    ({"dataset": Rows(0), "shuffle": True}, "num_samples should be a positive integer value"),
    ({"dataset": 5, "shuffle": True}, "len()"),
    # two at once: whichever PyTorch looks at first
    ({"num_workers": -1, "timeout": -1}, "num_workers option should be non-negative"),
    ({"timeout": -1, "prefetch_factor": 3}, "timeout option should be non-negative"),
    ({"prefetch_factor": 3, "persistent_workers": True}, "prefetch_factor option could only be"),
    ({"persistent_workers": True, "multiprocessing_context": "fork"}, "persistent_workers option"),
    (
        {"multiprocessing_context": "fork", "dataset": STREAM, "shuffle": True},
        "multiprocessing_context can only be used",
    ),
    ({"sampler": [1], "shuffle": True, "batch_size": 0}, "sampler option is mutually exclusive"),
    ({"batch_sampler": [[1]], "batch_size": None, "drop_last": True}, "mutually exclusive"),
    ({"nonsense": 1}, "unexpected keyword argument 'nonsense'"),
]


@pytest.mark.parametrize(("options", "text"), REFUSED, ids=lambda each: shown(each)[:60])
def test_what_pytorch_refuses_is_refused_with_its_type_and_text(
    options: dict[str, Any], text: str
) -> None:
    check_same_error(lambda loader: loader(**{"dataset": ROWS, **options}), text)


def test_no_dataset_is_refused_the_same() -> None:
    check_same_error(lambda loader: loader(), "missing 1 required positional argument: 'dataset'")


ACCEPTED: list[dict[str, Any]] = [
    {"batch_size": None},
    {"batch_sampler": [[1, 2], [3]]},
    {"batch_sampler": []},
    {"batch_sampler": [[1]], "batch_size": 1, "shuffle": False, "drop_last": False},
    {"dataset": []},
    {"dataset": [], "batch_size": 3, "drop_last": True},
    {"shuffle": 1},
    {"shuffle": 0},
    {"sampler": [], "batch_size": 2},
    {"sampler": [2, 3], "shuffle": False},
    {"dataset": STREAM, "shuffle": False},
    {"dataset": STREAM, "batch_size": 2, "drop_last": True},
    {"timeout": 0.0},
    {"pin_memory_device": ""},
    {"collate_fn": list},
    {"in_order": True},
    {"in_order": False},
    {"prefetch_factor": None},
    {"generator": torch.Generator()},
]


@pytest.mark.parametrize("options", ACCEPTED, ids=shown)
def test_what_pytorch_accepts_is_accepted_and_shown_the_same(options: dict[str, Any]) -> None:
    def act(loader: Any) -> Any:
        made = loader(**{"dataset": ROWS, **options})
        return [list(made), [getattr(made, name) for name in "batch_size drop_last".split()]]

    check_same(act)


def test_pin_memory_device_is_deprecated_the_same() -> None:
    def act(loader: Any) -> Any:
        return list(loader(ROWS, pin_memory=True, pin_memory_device="cuda"))

    theirs, own = both(act)
    assert own.warnings == theirs.warnings
    assert own.result == theirs.result


@LOADERS
@pytest.mark.parametrize(
    "options", [{"num_workers": 1, "prefetch_factor": 0}, {"timeout": 1}], ids=str
)
def test_errors_that_pytorch_raises_at_iter_are_raised_when_made(
    loader: Any, options: dict[str, Any]
) -> None:
    if loader is ours.DataLoader:
        with pytest.raises(AssertionError) as caught:
            loader(ROWS, **options)
        assert isinstance(caught.value, ValueError)
        assert next(iter(options)) in str(caught.value) or "prefetch_factor" in str(caught.value)
    else:
        assert loader(ROWS, **options) is not None
