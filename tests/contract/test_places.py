"""Places: how they are named, and groups of batches, one for each place (2.1)."""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, ConfigTypeError, DataLoader
from reader.places import CPU, Place, parse_place, parse_places
from tests.datasets import At, Raise, Rows, check_rows
from tests.streams import Parts, order_of, values_of

FEW = pytest.mark.parametrize("workers", [0, 1, 2])
PARTS = [range(11), range(100, 106)]


# ---- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cpu", Place("cpu")),
        ("CPU", Place("cpu")),
        (" cpu ", Place("cpu")),
        ("gpu", Place("gpu", 0)),
        ("gpu:0", Place("gpu", 0)),
        ("GPU:3", Place("gpu", 3)),
        ("cuda", Place("gpu", 0)),
        ("cuda:12", Place("gpu", 12)),
        ("gpu_pinned", Place("gpu_pinned")),
        ("cuda_pinned", Place("gpu_pinned")),
        ("npu", Place("npu", 0)),
        ("custom_npu:2", Place("custom_npu", 2)),
    ],
)
def test_place_is_named_by_text(text: str, wanted: Place) -> None:
    assert parse_place(text) == wanted
    assert parse_place(str(wanted)) == wanted
    assert parse_places(text) == (wanted,)


@pytest.mark.parametrize(
    "text",
    ["", "cpu:", "cpu:0", "cpu:1", "gpu:", "gpu:-1", "gpu:a", "gpu:0:1", "gpu 0", "gpu_pinned:0",
     "gpu0", "npu:12345", "cpu,cpu"],
)  # fmt: skip
def test_text_that_names_no_place_is_refused_with_what_can_be_passed(text: str) -> None:
    with pytest.raises(ConfigError, match="there is no place") as info:
        parse_place(text)
    assert repr(text) in str(info.value)
    assert 'Pass "cpu", "gpu"' in str(info.value)
    with pytest.raises(ConfigError):
        DataLoader(Rows(), places=text)


@pytest.mark.parametrize("value", [0, 1.5, True, b"cpu", object(), {"cpu": 1}, {"cpu"}, Place])
def test_value_of_another_type_is_refused_as_a_place(value: Any) -> None:
    for wrong in (value, [value], ("cpu", value)):
        with pytest.raises(ConfigTypeError, match="places must name a device for batches"):
            parse_places(wrong)


def test_places_are_one_or_a_list_of_them_and_never_none() -> None:
    assert parse_places(None) == (CPU,)
    assert parse_places(CPU) == (CPU,)
    assert parse_places(["gpu", "gpu:1"]) == (Place("gpu", 0), Place("gpu", 1))
    assert parse_places(("cpu", "cpu", "cpu")) == (CPU,) * 3
    for empty in ([], ()):
        with pytest.raises(ConfigError, match="at least one place"):
            parse_places(empty)
    with pytest.raises(ConfigTypeError):
        parse_places([None])
    with pytest.raises(ConfigTypeError):
        parse_places([["cpu"]])


@pytest.mark.parametrize("mixed", [["cpu", "gpu:1"], ("gpu:0", "gpu_pinned"), ["npu", "gpu"]])
def test_places_of_different_kinds_are_refused_by_name(mixed: Any) -> None:
    pytest.importorskip("torch")
    with pytest.raises(ConfigError, match="different kinds") as info:
        DataLoader(Rows(), places=mixed, framework="torch")
    assert ", ".join(str(parse_place(each)) for each in mixed) in str(info.value)


def test_place_can_be_compared_hashed_and_printed_and_not_changed() -> None:
    assert {Place(), CPU} == {CPU}
    assert Place("gpu", 1) != Place("gpu", 0)
    assert str(Place("gpu", 1)) == "gpu:1"
    assert str(CPU) == "cpu"
    with pytest.raises(AttributeError):
        CPU.kind = "gpu"  # type: ignore[misc]


def test_places_of_paddle_are_known() -> None:
    paddle = pytest.importorskip("paddle")
    from paddle.base import core

    assert parse_places(paddle.CPUPlace()) == (CPU,)
    assert parse_places([paddle.CPUPlace()] * 2) == (CPU, CPU)
    assert parse_places(paddle.static.cpu_places(3)) == (CPU,) * 3
    generic = core.Place()
    generic.set_place(paddle.CPUPlace())
    assert parse_place(generic) == CPU
    with pytest.raises(ConfigError, match="undefined"):
        parse_place(core.Place())


def test_devices_of_torch_are_known() -> None:
    torch = pytest.importorskip("torch")
    assert parse_places(torch.device("cpu")) == (CPU,)
    assert parse_places([torch.device("cuda", 2), torch.device("cuda:0")]) == (
        Place("gpu", 2),
        Place("gpu", 0),
    )
    assert parse_places(torch.device("xpu", 1)) == (Place("xpu", 1),)


def test_device_of_torch_with_a_number_for_the_cpu_is_the_cpu() -> None:
    torch = pytest.importorskip("torch")
    assert parse_place(torch.device("cpu", 0)) == CPU


@pytest.mark.parametrize(
    ("framework", "text"),
    [("numpy", "NumPy"), ("torch", "finds no CUDA"), ("paddle", "not compiled with CUDA")],
)
def test_unavailable_place_is_refused_when_the_loader_is_made(framework: str, text: str) -> None:
    module = pytest.importorskip(framework)
    if framework == "torch" and module.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    if framework == "paddle" and module.is_compiled_with_cuda():
        pytest.skip("this paddle has CUDA")
    if framework == "torch" and not hasattr(module.Stream, "__enter__"):
        text = "cannot copy batches to devices: torch 2.7 or later is needed"
    for places in ("gpu:0", ["gpu:1", "gpu:0"]):
        with pytest.raises(ConfigError, match=text) as info:
            DataLoader(Rows(), places=places, framework=framework)
        assert "gpu" in str(info.value)


@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
@pytest.mark.parametrize("text", ["gpu_pinned", "cp", "moon:1", "meta", "cpu_:0"])
def test_place_that_no_framework_has_is_refused_when_the_loader_is_made(
    framework: str, text: str
) -> None:
    pytest.importorskip(framework)
    with pytest.raises(ConfigError) as info:
        DataLoader(Rows(), places=text, framework=framework)
    assert str(parse_place(text)) in str(info.value)
    assert "pass an available place" in str(info.value)


# ---- groups ------------------------------------------------------------------------------------


def labels(batch: Any) -> list[int]:
    return [int(label) for label in batch[1]]


def groups_of(count: int, batch_size: int, places: int) -> list[list[list[int]]]:
    batches = [list(range(at, min(count, at + batch_size))) for at in range(0, count, batch_size)]
    return [batches[at : at + places] for at in range(0, len(batches), places)]


@pytest.mark.parametrize("places", [2, 3, 4, 9])
@FEW
def test_01_each_step_yields_one_batch_for_each_place_in_order(workers: int, places: int) -> None:
    with DataLoader(
        Rows(30), batch_size=4, num_workers=workers, places=["cpu"] * places,
        persistent_workers=True,
    ) as loader:  # fmt: skip
        wanted = groups_of(30, 4, places)
        assert len(loader) == 8
        assert loader.steps == len(wanted)
        for _ in range(2):
            found = list(loader)
            assert all(type(group) is list for group in found)
            assert [[labels(batch) for batch in group] for group in found] == wanted
            for group in found:
                for batch in group:
                    check_rows(batch, labels(batch))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
@pytest.mark.parametrize("count", [32, 30, 24, 3, 0])
def test_01_last_group_that_is_short_is_delivered_dropped_or_dropped_with_a_warning(
    count: int, framework: str
) -> None:
    pytest.importorskip(framework)
    options: dict[str, Any] = {
        "batch_size": 4,
        "places": ["cpu"] * 3,
        "num_workers": 1,
        "framework": framework,
    }
    wanted = groups_of(count, 4, 3)
    left = len(wanted[-1]) % 3 if wanted else 0
    whole = wanted[:-1] if left else wanted
    with DataLoader(Rows(count), **options) as loader:
        assert loader.steps == len(wanted)
        assert [[labels(b) for b in group] for group in loader] == wanted
    with DataLoader(Rows(count), drop_last_group=True, **options) as loader:
        assert loader.steps == len(whole)
        assert [[labels(b) for b in group] for group in loader] == whole
    with DataLoader(
        Rows(count), drop_last_group=None, persistent_workers=True, **options
    ) as loader:
        assert loader.steps == len(whole)
        for _ in range(2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12, at any fork
                assert [[labels(b) for b in group] for group in loader] == whole
            if not left:
                assert caught == []
                continue
            (warning,) = caught
            assert warning.category is UserWarning
            assert warning.filename == __file__
            text = str(warning.message)
            assert f"the last {left} of {-(-count // 4)} batches were left out" in text
            assert "a group of 3 places" in text
            assert "drop_last_group=False" in text
            assert "drop_last_group=True" in text


def test_drop_last_group_must_be_a_bool_or_none() -> None:
    for wrong in (0, 1, "no"):
        with pytest.raises(ConfigTypeError, match="drop_last_group"):
            DataLoader(Rows(), places=["cpu"] * 2, drop_last_group=wrong)  # type: ignore[arg-type]


@FEW
@pytest.mark.parametrize("bad", [0, 1, 2, 3, 6, 7])
def test_01_error_inside_a_group_keeps_its_batches_for_the_next_call(
    workers: int, bad: int
) -> None:
    """Eight batches for three places; the bad one is an error in its place, all others arrive."""
    dataset = At(4 * bad, Raise(lambda: ValueError("bad")), 32)
    with DataLoader(
        dataset, batch_size=4, num_workers=workers, places=["cpu"] * 3, persistent_workers=True
    ) as loader:
        for _ in range(2):
            found: list[Any] = []
            step = iter(loader)
            while True:
                try:
                    found.append([labels(batch)[0] // 4 for batch in next(step)])
                except StopIteration:
                    break
                except ValueError:
                    found.append("error")
            good = [n for n in range(8) if n != bad]
            wanted: list[Any] = [good[at : at + 3] for at in range(0, 7, 3)]
            # raised when the batches before it are gathered, before their group
            wanted.insert(sum(1 for n in range(bad)) // 3, "error")
            assert found == wanted


@FEW
def test_01_stream_with_places_is_grouped_in_order(workers: int) -> None:
    wanted = order_of(PARTS, workers, 2)
    for rule in (False, True):
        with DataLoader(
            Parts(PARTS), batch_size=2, num_workers=workers, places=["cpu"] * 2,
            drop_last_group=rule,
        ) as loader:  # fmt: skip
            found = [[values_of(batch) for batch in group] for group in loader]
            groups = [wanted[at : at + 2] for at in range(0, len(wanted), 2)]
            assert found == [group for group in groups if len(group) == 2 or not rule]


@FEW
def test_01_break_inside_an_epoch_of_groups_leaves_the_next_one_whole(workers: int) -> None:
    with DataLoader(
        Rows(30), batch_size=4, num_workers=workers, places=["cpu"] * 3, persistent_workers=True
    ) as loader:
        for position in range(3):
            for n, _ in enumerate(loader):
                if n == position:
                    break
            assert [[labels(b) for b in g] for g in loader] == groups_of(30, 4, 3)


def test_one_place_in_a_list_yields_batches_and_no_groups() -> None:
    for places in ("cpu", ["cpu"], None):
        with DataLoader(Rows(8), batch_size=4, places=places) as loader:
            assert [labels(batch) for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
            assert loader.steps == len(loader) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_iterator_of_groups_closes_and_has_a_length(workers: int) -> None:
    with DataLoader(Rows(30), batch_size=4, num_workers=workers, places=["cpu"] * 3) as loader:
        steps: Any = iter(loader)
        assert len(steps) == 8
        next(steps)
        steps.close()
        steps.close()
        with pytest.raises(StopIteration):
            next(steps)


def test_02_batches_of_a_group_are_the_users_own() -> None:
    with DataLoader(
        Rows(64), batch_size=4, num_workers=2, places=["cpu"] * 4, persistent_workers=True
    ) as loader:
        kept = [batch for _ in range(3) for group in loader for batch in group]
        for n, batch in enumerate(kept):
            check_rows(batch, range(4 * (n % 16), 4 * (n % 16) + 4))
            batch[0][:] = -1
        del batch
        kept.clear()


def test_places_keep_at_least_a_group_in_flight() -> None:
    """With fewer workers than places, as many batches are in flight as there are places."""
    for places, workers, window in ((4, 0, 2 * 4 + 2 * 4), (4, 1, 2 * 4), (2, 3, 2 * 3)):
        loader = DataLoader(Rows(), num_workers=workers, places=["cpu"] * places)
        assert loader.config.window == window


def test_without_batching_each_place_gets_a_sample() -> None:
    def numbers() -> Iterator[int]:
        return iter(range(5))

    for dataset in (list(range(5)), dict.fromkeys(numbers()).keys()):
        with DataLoader(dataset, batch_size=None, places=["cpu"] * 2) as loader:
            assert list(loader) == [[0, 1], [2, 3], [4]]


def test_leaves_of_numpy_are_arrays_at_every_place() -> None:
    with DataLoader(Rows(8), batch_size=4, places=["cpu"] * 2) as loader:
        ((first, second),) = loader
        assert all(type(field) is np.ndarray for batch in (first, second) for field in batch)


# -- in the words of each face -------------------------------------------------------------------


def test_an_unavailable_device_of_torch_is_refused_by_the_argument_of_that_face() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    from reader.compat.torch import DataLoader as TorchLoader

    with pytest.raises(ConfigError, match=r"device='cuda:0' was given: pass a device") as info:
        TorchLoader(Rows(), device="cuda:0")
    assert "places=" not in str(info.value)
    assert "framework=" not in str(info.value)


def test_an_unavailable_place_of_paddle_is_refused_by_the_argument_of_that_face() -> None:
    paddle = pytest.importorskip("paddle")
    if paddle.is_compiled_with_cuda():
        pytest.skip("this paddle has CUDA")
    from reader.compat.paddle import DataLoader as PaddleLoader

    with pytest.raises(ConfigError, match=r"places='gpu:0' was given: pass a place") as info:
        PaddleLoader(Rows(), places="gpu:0")
    assert "framework=" not in str(info.value)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("devices", "steps"), [(["cpu", "cpu"], 3), (["cpu"] * 3, 2), ("cpu", 5)])
def test_length_of_torchs_loader_counts_steps(workers: int, devices: Any, steps: int) -> None:
    torch = pytest.importorskip("torch")
    from reader.compat.torch import DataLoader as TorchLoader

    loader = TorchLoader(list(range(20)), 4, num_workers=workers, device=devices)
    found = list(loader)
    assert len(loader) == len(found) == steps
    batches = found if devices == "cpu" else [batch for step in found for batch in step]
    assert torch.equal(torch.cat(batches), torch.arange(20))


def test_a_loader_of_torch_without_a_state_says_which_has_one() -> None:
    pytest.importorskip("torch")
    from reader.compat.torch import DataLoader as TorchLoader
    from reader.compat.torch import StatefulDataLoader

    class Loader(TorchLoader[Any]):
        @property
        def broken(self) -> Any:
            return [].none  # type: ignore[attr-defined]

    for name in ("state_dict", "load_state_dict"):
        assert not hasattr(Loader([1]), name)
        assert hasattr(StatefulDataLoader([1]), name)
        with pytest.raises(AttributeError, match=f"Loader has no {name}, .* use .*Stateful"):
            getattr(Loader([1]), name)
    with pytest.raises(AttributeError, match="'Loader' object has no attribute 'state_dic'"):
        operator.attrgetter("state_dic")(Loader([1]))
    with pytest.raises(AttributeError, match="'list' object has no attribute 'none'"):
        operator.attrgetter("broken")(Loader([1]))
    assert copy.copy(Loader([1])).batch_size == 1
