"""Feeding static programs of Paddle: by name and by position, checked, ragged, at each place."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest

from reader import CollateError, ConfigError, DataLoader, LoDTensor, LoDTensorArray
from reader.frameworks.paddle_feed import FeedPlan
from reader.frameworks.paddle_version import IS_3, DenseTensor
from tests.datasets import Box, Calls, Point

FEW = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture
def static() -> Iterator[Any]:
    """Static mode, with the test's own program and scope: a scope keeps its feeds."""
    paddle.enable_static()
    scope = paddle.static.Scope()
    try:
        with (
            paddle.static.scope_guard(scope),
            paddle.static.program_guard(paddle.static.Program(), paddle.static.Program()),
        ):
            yield paddle.static
    finally:
        names = getattr(scope, "local_var_names", list)()  # Paddle 2.6 has none
        for name in names:  # paddle's caches keep the scope
            variable_of = scope.find_var(name)
            if variable_of is not None:
                variable_of.get_tensor()._clear()
        paddle.disable_static()


def variable(name: str, shape: Any = None, dtype: Any = None) -> Any:
    """As paddle.static.data, without a program."""
    return SimpleNamespace(name=name, shape=shape, dtype=dtype)


def tensors(batch: LoDTensorArray, shapes: Any, bits: Any) -> list[Any]:
    """The fields themselves, instead of paddle's tensors."""
    return [t.reshape(shapes[n]) if n in shapes else t for n, t in enumerate(batch)]


def feed(feed_list: Any, batch: Any) -> dict[str, np.ndarray]:
    """The feed that a plan makes of a batch; LoDTensors stand for paddle's DenseTensors."""
    found = FeedPlan(feed_list).feed(LoDTensorArray.from_batch(batch), tensors)
    return {name: tensor.numpy() for name, tensor in found.items()}


X = np.arange(8, dtype=np.float32).reshape(4, 2)
Y = np.arange(4)


# ---- which field goes where --------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch",
    [(X, Y), [X, Y], ((X,), [Y]), [[X, Y]], Point(X, Y), Box(X, Y), (Point(X, Y),)],
    ids=["tuple", "list", "nested", "deeper", "namedtuple", "dataclass", "within"],
)
def test_fields_in_order_go_by_position(batch: Any) -> None:
    if isinstance(batch, Box):
        with pytest.raises(CollateError, match=r"no arrays.*name"):
            feed(["x", "y"], batch)  # its third field is a text
        return
    found = feed(["x", "y"], batch)
    assert list(found) == ["x", "y"]
    assert found["x"] is not None
    assert (found["x"] == X).all()
    assert (found["y"] == Y).all()


@pytest.mark.parametrize(
    "batch",
    [{"y": Y, "x": X}, {"x": X, "y": Y}, [{"y": Y}, {"x": X}], {"a": {"y": Y}, "b": {"x": X}},
     {"a": {"y": (Y,)}, "b": {"x": [X]}}],
    ids=["dict", "in order", "dicts", "nested", "deeper"],
)  # fmt: skip
def test_fields_in_dicts_go_by_name_whatever_their_order(batch: Any) -> None:
    found = feed(["x", "y"], batch)
    assert list(found) == ["x", "y"]
    assert (found["x"] == X).all()
    assert (found["y"] == Y).all()


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ((X,), r"names 2 inputs \['x', 'y'\], and the batch has 1 fields"),
        ((X, Y, Y), r"names 2 inputs \['x', 'y'\], and the batch has 3 fields"),
        (X, r"the batch has 1 fields"),
    ],
)
def test_number_of_fields_unlike_the_inputs_is_refused_with_both(batch: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as info:
        feed(["x", "y"], batch)
    assert str(info.value).startswith(
        "The sample number of reader's input data and the input number of feed list are not equal"
    )


@pytest.mark.parametrize(
    "batch",
    [
        {"x": X, "z": Y},
        {"x": X},
        {"x": X, "y": Y, "z": Y},
        {"X": X, "Y": Y},
        [{"x": X}, {"x": X}],
        {"x": (X, X)},
    ],
)
def test_names_unlike_the_inputs_are_refused_with_both(batch: Any) -> None:
    with pytest.raises(ConfigError, match=r"\['x', 'y'\].*keys.*by name"):
        feed(["x", "y"], batch)


def test_batch_of_dicts_and_positions_is_refused() -> None:
    with pytest.raises(ConfigError, match="mixes fields in dicts"):
        feed(["x", "y"], (X, {"y": Y}))


@pytest.mark.parametrize(
    ("batch", "where"),
    [
        ((X, ["a"] * 4), r"\[1\]"),
        ({"x": X, "y": ["a"] * 4}, "y"),
        ((X, Y, None), r"\[2\]"),
        ((X, b"raw"), r"\[1\]"),
        ({"x": X, "y": Y, "name": ["a"]}, "name"),
        ("text", "the batch itself"),
        ((), "the batch itself"),
    ],
)
def test_fields_that_are_no_arrays_are_refused_and_named(batch: Any, where: str) -> None:
    with pytest.raises(CollateError, match=rf"no arrays and cannot be fed: .*{where}"):
        feed(["x", "y"], batch)


def test_each_structure_is_matched_for_itself() -> None:
    plan = FeedPlan(["x", "y"])
    for _ in range(2):
        for batch in ((X, Y), {"y": Y, "x": X}, {"x": X, "y": Y}, [[X], [Y]]):
            found = plan.feed(LoDTensorArray.from_batch(batch), tensors)
            assert (found["x"].numpy() == X).all()
            assert (found["y"].numpy() == Y).all()
        with pytest.raises(ConfigError):
            plan.feed(LoDTensorArray.from_batch((X, Y, Y)), tensors)


# ---- as declared -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "have", "wanted"),
    [
        ([-1, 2], (4, 2), (4, 2)),
        ([4, 2], (4, 2), (4, 2)),
        ([-1, -1], (4, 2), (4, 2)),
        ([None, 2], (4, 2), (4, 2)),
        ([-1, 1], (4,), (4, 1)),
        ([-1], (4, 1), (4,)),
        ([-1, 2, 1], (4, 2), (4, 2, 1)),
        ([-1, 2], (4, 2, 1), (4, 2)),
        ([-1, 8], (4, 2, 4), (4, 8)),
        ([4, 1], (4,), (4, 1)),
        ([], (1,), ()),
        ([1], (), (1,)),
        ([-1, 2], (0, 2), (0, 2)),
        ([-1, 1], (0,), (0, 1)),
    ],
)
def test_shape_that_fits_passes_and_one_that_differs_in_rank_alone_is_reshaped(
    declared: Any, have: Any, wanted: Any
) -> None:
    array = np.arange(np.prod(have, dtype=int), dtype=np.float32).reshape(have)
    found = feed([variable("x", declared, "paddle.float32")], array)["x"]
    assert found.shape == wanted
    assert found.ravel().tolist() == array.ravel().tolist()


@pytest.mark.parametrize(
    ("declared", "have"),
    [
        ([-1, 3], (4, 2)),
        ([5, 2], (4, 2)),
        ([2, 4], (4, 2)),  # the same size and rank is another shape all the same
        ([-1, 3], (4,)),
        ([-1, -1, 1], (4, 2)),
        ([5, 1], (4,)),
        ([], (2,)),
    ],
)
def test_shape_that_does_not_fit_is_refused_with_both(declared: Any, have: Any) -> None:
    with pytest.raises(ConfigError, match="declared with shape") as info:
        feed([variable("x", declared, "float32")], np.zeros(have, np.float32))
    assert f"'x' is declared with shape {list(declared)}" in str(info.value)
    assert f"the batch has {list(have)}" in str(info.value)


@pytest.mark.parametrize("kind", ["float64", "int32", "bool", "float16", "complex64"])
def test_type_unlike_the_declared_one_is_refused_with_both(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"declared as float32, and the batch has {kind}"):
        feed([variable("x", [-1, 2], "paddle.float32")], X.astype(kind))


def test_names_alone_declare_neither_shape_nor_type() -> None:
    for array in (X, X.astype("int8"), X.reshape(2, 2, 2)):
        assert feed(["x"], array)["x"].shape == array.shape


# ---- real programs -----------------------------------------------------------------------------


def in_order(i: int) -> Any:
    return np.full(3, i, np.float32), i


def in_dict(i: int) -> Any:
    return {"y": i, "x": np.full(3, i, np.float32)}


def total(static: Any, feeds: list[Any]) -> tuple[Any, Any]:
    """An executor, and its fetch list: a number for each input."""
    return static.Executor(paddle.CPUPlace()), [paddle.sum(each) for each in feeds]


@FEW
def test_program_runs_on_what_the_loader_feeds_by_position_and_by_name(
    static: Any, workers: int
) -> None:
    x = static.data("x", [None, 3], "float32")
    y = static.data("y", [None, 1], "int64")
    exe, fetch = total(static, [x, y])

    for sample in (in_order, in_dict):
        with DataLoader(
            Calls(sample, 10), feed_list=[x, y], return_list=False, framework="paddle",
            batch_size=4, num_workers=workers, persistent_workers=True,
        ) as loader:  # fmt: skip
            for _ in range(2):
                seen = []
                for batch in loader:
                    assert type(batch) is list
                    (its,) = batch
                    assert type(its) is dict
                    assert list(its) == ["x", "y"]
                    assert isinstance(its["x"], DenseTensor)
                    assert its["y"].shape() == [len(np.array(its["y"])), 1]
                    sums = exe.run(feed=its, fetch_list=fetch)
                    assert float(sums[0]) == 3 * float(sums[1])
                    seen.append(int(sums[1]))
                assert seen == [0 + 1 + 2 + 3, 4 + 5 + 6 + 7, 8 + 9]


@FEW
def test_each_feed_is_a_fresh_dict_that_the_user_may_change(static: Any, workers: int) -> None:
    x = static.data("x", [None, 3], "float32")
    with DataLoader(
        Calls(lambda i: np.full(3, i, np.float32), 8), feed_list=[x], return_list=False,
        framework="paddle", batch_size=2, num_workers=workers,
    ) as loader:  # fmt: skip
        kept = []
        for (batch,) in loader:
            kept.append(batch.copy())
            batch["more"] = batch.pop("x")
        assert [list(each) for each in kept] == [["x"]] * 4
        assert [float(np.array(each["x"]).sum()) for each in kept] == [3.0, 15.0, 27.0, 39.0]


@FEW
def test_steps_on_n_places_feed_one_dict_for_each(static: Any, workers: int) -> None:
    x = static.data("x", [None, 1], "float32")
    exe, fetch = total(static, [x])
    with DataLoader(
        Calls(lambda i: np.float32(i), 10), feed_list=[x], return_list=False, framework="paddle",
        batch_size=2, num_workers=workers, places=static.cpu_places(2),
    ) as loader:  # fmt: skip
        found = [
            [float(exe.run(feed=its, fetch_list=fetch)[0]) for its in group] for group in loader
        ]
    assert found == [[1.0, 5.0], [9.0, 13.0], [17.0]]


@FEW
def test_return_list_gives_dense_tensors_in_their_containers(static: Any, workers: int) -> None:
    x = static.data("x", [None, 3], "float32")
    y = static.data("y", [None], "int64")
    for sample in (in_order, in_dict):
        with DataLoader(
            Calls(sample, 4),
            feed_list=[x, y],
            framework="paddle",
            batch_size=2,
            num_workers=workers,
        ) as loader:
            for n, batch in enumerate(loader):
                parts = [batch["x"], batch["y"]] if isinstance(batch, dict) else list(batch)
                assert all(isinstance(part, DenseTensor) for part in parts)
                assert np.array(parts[1]).tolist() == [2 * n, 2 * n + 1]
    with (
        DataLoader(
            Calls(lambda i: (i, i, i), 4), feed_list=[x, y], framework="paddle", num_workers=workers
        ) as loader,
        pytest.raises(ConfigError, match=r"names 2 inputs .* has 3 fields"),
    ):
        next(iter(loader))


@FEW
def test_an_array_at_two_places_is_fed_at_each(static: Any, workers: int) -> None:
    names = [static.data(name, [None, 3], "float32") for name in ("x", "y", "z", "w")]

    def rows(samples: list[Any]) -> Any:
        inner = [samples[0], samples[1]]
        return [inner, inner]

    def fed(collate_fn: Any) -> Any:
        with DataLoader(
            Calls(lambda i: np.full((1, 3), i, np.float32), 2), batch_size=2, collate_fn=collate_fn,
            feed_list=names, return_list=False, framework="paddle", num_workers=workers,
        ) as loader:  # fmt: skip
            return next(iter(loader))[0]

    assert [np.array(tensor)[0, 0] for tensor in fed(rows).values()] == [0, 1, 0, 1]
    one = fed(lambda samples: dict.fromkeys("xyzw", samples[1]))
    assert [np.array(one[name])[0, 0] for name in "xyzw"] == [1, 1, 1, 1]

    def knot(samples: list[Any]) -> Any:
        samples.append(samples)
        return samples

    with pytest.raises(CollateError, match="contains itself, and cannot be fed; leave it out"):
        fed(knot)


def test_01_batch_that_does_not_fit_its_program_is_refused_and_the_next_one_comes(
    static: Any,
) -> None:
    x = static.data("x", [None, 3], "float32")
    with DataLoader(
        Calls(lambda i: np.zeros(3 + (i == 1), "f4"), 3), feed_list=[x], return_list=False,
        framework="paddle", num_workers=1,
    ) as loader:  # fmt: skip
        batches = iter(loader)
        assert next(batches)[0]["x"].shape() == [1, 3]
        with pytest.raises(ConfigError, match=r"shape \[-1, 3\], and the batch has \[1, 4\]"):
            next(batches)
        assert next(batches)[0]["x"].shape() == [1, 3]


def test_type_that_paddle_lacks_is_refused_by_name(static: Any) -> None:
    x = static.data("x", [None, 3], "float32")
    for feed_list in (["x"], [x]):
        with (
            DataLoader(
                Calls(lambda i: np.zeros(3, "u2"), 3), feed_list=feed_list, return_list=False,
                framework="paddle",
            ) as loader,
            pytest.raises(ConfigError, match=r"'x'.*uint16"),
        ):  # fmt: skip
            next(iter(loader))


@pytest.mark.parametrize("shape", [[None], [None, 1]])
def test_bfloat16_goes_to_a_program_as_bfloat16(static: Any, shape: Any) -> None:
    import ml_dtypes

    x = static.data("x", shape, "bfloat16")
    y = paddle.cast(x, "float32")
    exe = static.Executor(paddle.CPUPlace())
    with DataLoader(
        Calls(lambda i: np.array(i + 0.5, ml_dtypes.bfloat16), 4), feed_list=[x],
        return_list=False, framework="paddle", batch_size=4,
    ) as loader:  # fmt: skip
        ((its,),) = loader
        (found,) = exe.run(feed=its, fetch_list=[y])
    assert found.ravel().tolist() == [0.5, 1.5, 2.5, 3.5]
    assert found.shape == (4,) + (1,) * (len(shape) - 1)


@pytest.mark.parametrize("is_face", [False, True])
def test_an_input_of_bfloat16_takes_its_bits_as_uint16(static: Any, is_face: bool) -> None:
    from reader.compat.paddle import DataLoader as Face

    x = static.data("x", [None, 1], "bfloat16")
    y = paddle.cast(x, "float32")
    exe = static.Executor(paddle.CPUPlace())
    bits = (np.array([1.5, -2, 0.25], np.float32).view(np.uint32) >> 16).astype(np.uint16)
    make: Any = Face if is_face else functools.partial(DataLoader, framework="paddle")
    with make(list(bits), feed_list=[x], return_list=False, batch_size=3) as loader:
        ((its,),) = loader
        (found,) = exe.run(feed=its, fetch_list=[y])
    assert found.tolist() == [[1.5], [-2.0], [0.25]]


def test_another_type_for_an_input_of_bfloat16_is_refused_with_what_numpy_has(static: Any) -> None:
    x = static.data("x", [None, 3], "bfloat16")
    with (
        DataLoader(
            Calls(lambda i: np.zeros(3, "f4"), 3), feed_list=[x], return_list=False,
            framework="paddle",
        ) as loader,
        pytest.raises(ConfigError, match=r"astype\(ml_dtypes.bfloat16\), or its bits as .uint16"),
    ):  # fmt: skip
        next(iter(loader))


def test_02_a_feed_keeps_its_memory_as_long_as_it_lives(static: Any) -> None:
    x = static.data("x", [None, 3], "float32")
    with DataLoader(
        Calls(lambda i: np.full(3, i, "f4"), 32), feed_list=[x], return_list=False,
        framework="paddle", num_workers=2, persistent_workers=True,
    ) as loader:  # fmt: skip
        kept = [its["x"] for (its,) in loader]
        assert loader.stats()["arena"]["held_slots"] == (32 if IS_3 else 0)
        for _ in range(2):
            for batch in loader:
                del batch
        assert [float(np.array(each)[0, 0]) for each in kept] == list(range(32))
        kept.clear()
        assert loader.stats()["arena"]["held_slots"] == 0


@pytest.mark.parametrize("shape", [[None], [None, 1], [None, 1, 1]])
@FEW
def test_02_rank_only_reshape_releases_its_slot(static: Any, workers: int, shape: Any) -> None:
    y = static.data("y", shape, "int64")
    with DataLoader(
        list(range(8)), feed_list=[y], return_list=False, framework="paddle", batch_size=2,
        num_workers=workers, persistent_workers=True,
    ) as loader:  # fmt: skip
        for _ in range(3):
            found = [np.array(its["y"]).ravel().tolist() for (its,) in loader]
            assert found == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert loader.stats()["arena"]["held_slots"] == 0


@pytest.mark.parametrize(
    "sample",
    [
        lambda i: (np.zeros((0,), np.float32), np.float32(i)),
        lambda i: (np.float32(i), np.zeros((0, 4), np.float32)),
        lambda i: (np.zeros((0,), np.float32), np.zeros((2, 0), np.float32), np.float32(i)),
    ],
    ids=["first", "last", "two"],
)
@FEW
def test_02_batch_with_an_empty_field_releases_its_slot(workers: int, sample: Any) -> None:
    """Paddle's from_dlpack keeps one deleter for an address: no two fields may have the same."""
    with DataLoader(
        Calls(sample, 8), batch_size=2, framework="paddle", num_workers=workers,
        persistent_workers=True,
    ) as loader:  # fmt: skip
        for _ in range(2):
            for batch in loader:
                assert len(batch) == len(sample(0))
            del batch
        assert loader.stats()["arena"]["held_slots"] == 0


# ---- ragged ------------------------------------------------------------------------------------


def ragged(samples: list[Any]) -> LoDTensor:
    offsets = np.cumsum([0, *map(len, samples)]).tolist()
    return LoDTensor(np.concatenate(samples), [offsets])


def dense_ragged(samples: list[Any]) -> Any:
    tensor = DenseTensor()
    tensor.set(np.concatenate(samples), paddle.CPUPlace())
    tensor.set_lod([np.cumsum([0, *map(len, samples)]).tolist()])
    return tensor


def rows(i: int) -> Any:
    return np.full((i % 3 + 1, 2), i, np.float32)


LODS = [[[0, 1, 3]], [[0, 3, 4]], [[0, 2, 5]]]


@pytest.mark.parametrize("make", [ragged, dense_ragged])
@FEW
def test_ragged_batch_keeps_its_lod_in_numpy(workers: int, make: Any) -> None:
    with DataLoader(Calls(rows, 6), batch_size=2, collate_fn=make, num_workers=workers) as loader:
        found = list(loader)
    assert all(type(batch) is LoDTensor for batch in found)
    assert [batch.lod for batch in found] == LODS
    assert found[1].numpy()[:, 0].tolist() == [2.0] * 3 + [3.0]


@pytest.mark.parametrize("make", [ragged, dense_ragged])
@pytest.mark.parametrize("return_list", [True, False])
@FEW
def test_ragged_batch_goes_to_a_program_with_its_lod(
    static: Any, workers: int, return_list: bool, make: Any
) -> None:
    x = static.data("x", [None, 2], "float32")
    y = static.data("y", [None, 1], "float32")

    def collate(samples: list[Any]) -> Any:
        return make(samples), np.ones((len(samples), 1), np.float32)

    exe, fetch = total(static, [x, y])
    with DataLoader(
        Calls(rows, 6), batch_size=2, collate_fn=collate, num_workers=workers,
        feed_list=[x, y], return_list=return_list, framework="paddle", persistent_workers=True,
    ) as loader:  # fmt: skip
        for _ in range(2):
            lods, sums = [], []
            for batch in loader:
                its = dict(zip("xy", batch, strict=True)) if return_list else batch[0]
                assert isinstance(its["x"], DenseTensor)
                lods.append(its["x"].lod())
                assert its["y"].lod() == []
                sums.append(float(exe.run(feed=its, fetch_list=fetch)[0]))
            assert lods == LODS
            assert sums == [4.0, 18.0, 46.0]


def test_ragged_batch_by_name_and_of_several_levels(static: Any) -> None:
    levels = [[0, 1, 2], [0, 2, 5]]

    def collate(samples: list[Any]) -> Any:
        return {"b": np.ones(2, np.int64), "a": LoDTensor(np.ones((5, 2), np.float32), levels)}

    with DataLoader(
        Calls(rows, 2), batch_size=2, collate_fn=collate, num_workers=1, feed_list=["a", "b"],
        return_list=False, framework="paddle",
    ) as loader:  # fmt: skip
        (((its,)),) = loader
        assert its["a"].lod() == levels
        assert np.array(its["b"]).tolist() == [1, 1]


def test_ragged_samples_without_a_collate_fn_are_refused() -> None:
    with (
        DataLoader(Calls(lambda i: LoDTensor(np.ones((2, 1)), [[0, 1, 2]]), 2)) as loader,
        pytest.raises(CollateError, match="ragged tensor with LoD"),
    ):
        next(iter(loader))
