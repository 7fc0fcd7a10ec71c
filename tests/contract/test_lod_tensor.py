"""LoDTensor and LoDTensorArray by themselves: one copy of the bytes, seen by every library."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from reader import ConfigError, ConfigTypeError, DataLoader, LoDTensor, LoDTensorArray
from tests.datasets import Rows
from tests.versions import IS_NUMPY_2, MOST_DIMENSIONS, NUMPY


def address(value: Any) -> int:
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    return int(np.asarray(value).ctypes.data)


@pytest.mark.parametrize("kind", "? b B h H i I q Q e f d F D M8[s] m8[ns] S3 U2 V5".split())
def test_bytes_are_shared_with_numpy_both_ways(kind: str) -> None:
    array = np.zeros((2, 3), kind)
    tensor = LoDTensor(array)
    assert tensor.shape == (2, 3)
    assert len(tensor) == 2
    for view in (tensor.numpy(), np.asarray(tensor), np.array(tensor, copy=False)):
        assert view.ctypes.data == array.ctypes.data
        assert view.dtype == array.dtype
        assert view.flags.writeable
    if kind not in ("M8[s]", "m8[ns]", "V5"):  # types that the buffer protocol lacks
        assert memoryview(tensor).shape == (2, 3)
        assert memoryview(tensor).nbytes == array.nbytes


@pytest.mark.parametrize("kind", "b B h H i I q Q e f d F D ?".split())
def test_dlpack_both_ways_shares_the_bytes(kind: str) -> None:
    array = np.ones((2, 3), kind)
    tensor = LoDTensor(array)
    assert tensor.__dlpack_device__() == (1, 0)
    if kind != "?" or NUMPY >= (1, 25):  # before, NumPy's DLPack had no bools
        out = np.from_dlpack(tensor)
        assert out.ctypes.data == array.ctypes.data
        back = LoDTensor.from_dlpack(array)
        assert back.numpy().ctypes.data == array.ctypes.data
    again = LoDTensor.from_dlpack(tensor.__dlpack__())
    assert again.numpy().ctypes.data == array.ctypes.data
    versioned = LoDTensor.from_dlpack(tensor.__dlpack__(max_version=(1, 0)))
    assert versioned.numpy().ctypes.data == array.ctypes.data
    copied = LoDTensor.from_dlpack(tensor.__dlpack__(copy=True))
    assert copied.numpy().ctypes.data != array.ctypes.data
    assert (copied.numpy() == array).all()


def test_dlpack_capsule_is_good_once_and_frees_what_it_holds() -> None:
    array = np.ones(5)
    gone = weakref.ref(array)
    capsule = LoDTensor(array).__dlpack__()
    del array
    gc.collect()
    assert gone() is not None
    kept = LoDTensor.from_dlpack(capsule)
    with pytest.raises(ConfigTypeError, match="used before"):
        LoDTensor.from_dlpack(capsule)
    del capsule
    gc.collect()
    assert kept.numpy().tolist() == [1] * 5
    del kept
    gc.collect()
    assert gone() is None
    unused = LoDTensor(np.ones(3)).__dlpack__(max_version=(1, 1))
    del unused
    with pytest.raises(ConfigTypeError, match="no DLPack capsule"):
        LoDTensor.from_dlpack(5)


def test_dlpack_refuses_types_that_it_lacks() -> None:
    frozen = np.ones(3)
    frozen.flags.writeable = False
    tensor = LoDTensor(frozen)
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__()
    if IS_NUMPY_2:  # others ask for no DLPack in which a tensor can be read-only
        assert not np.from_dlpack(tensor).flags.writeable
    for options in ({"stream": 1}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError, match="CPU"):
            tensor.__dlpack__(**options)
    with pytest.raises(BufferError, match="no element type for datetime64"):
        LoDTensor(np.zeros(2, "M8[s]")).__dlpack__()


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a.T,
        lambda a: a[::-1, ::2],
        lambda a: np.broadcast_to(a[0], (3, 4)),
        lambda a: a.astype(">f8"),
    ],
    ids=["transposed", "negative steps", "broadcast", "big-endian"],
)
def test_other_layouts_are_copied_into_c_order(make: Callable[[Any], Any]) -> None:
    source = make(np.arange(12.0).reshape(3, 4))
    tensor = LoDTensor(source)
    assert tensor.numpy().flags.c_contiguous
    assert tensor.numpy().dtype.isnative
    assert (tensor.numpy() == source).all()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,) * MOST_DIMENSIONS])
def test_odd_shapes_are_tensors(shape: tuple[int, ...]) -> None:
    tensor = LoDTensor(np.ones(shape, "f4"))
    assert tensor.shape == shape
    assert tensor.numpy().shape == shape
    assert np.from_dlpack(tensor).shape == shape
    assert LoDTensor.from_dlpack(tensor).shape == shape
    assert pickle.loads(pickle.dumps(tensor)).shape == shape
    if shape == ():
        with pytest.raises(TypeError, match="0-d"):
            len(tensor)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_extended_types_pass_between_libraries_without_a_copy(name: str) -> None:
    torch = pytest.importorskip("torch")
    array = np.array([1, 2, 4], getattr(ml_dtypes, name))
    tensor = LoDTensor(array)
    assert tensor.dtype == name
    assert tensor.numpy().dtype == array.dtype
    assert tensor.numpy().ctypes.data == array.ctypes.data
    source = torch.tensor([1.0, 2.0, 4.0]).to(getattr(torch, name))
    from_torch = LoDTensor(source)
    assert from_torch.dtype == name
    assert from_torch.storage().ctypes.data == source.data_ptr()
    if name == "bfloat16":
        out = torch.from_dlpack(tensor)
        assert out.dtype is torch.bfloat16
        assert out.data_ptr() == array.ctypes.data


def test_one_address_in_numpy_torch_and_paddle() -> None:
    torch = pytest.importorskip("torch")
    paddle = pytest.importorskip("paddle")
    tensor = LoDTensor(np.arange(6, dtype="f4").reshape(2, 3))
    views = [
        tensor.numpy(),
        torch.from_dlpack(tensor),
        paddle.utils.dlpack.from_dlpack(tensor.__dlpack__()),
        LoDTensor(torch.from_dlpack(tensor)),
        LoDTensor(paddle.utils.dlpack.from_dlpack(tensor.__dlpack__())),
        LoDTensor(tensor),
        LoDTensor(memoryview(tensor)),
    ]
    assert {address(view) for view in views} == {address(tensor)}
    views[1][0, 0] = 77
    assert float(views[2][0, 0]) == 77
    assert tensor.numpy()[0, 0] == 77


def test_source_lives_as_long_as_any_view() -> None:
    array = np.arange(5.0)
    gone = weakref.ref(array)
    view = memoryview(LoDTensor(array))
    del array
    gc.collect()
    assert gone() is not None
    assert view[2] == 2
    view.release()
    del view
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "value",
    [object(), [[1], [1, 2]], "text", [None], np.array([None]), {"a": 1}],
    ids=["object", "ragged", "text", "none", "objects", "dict"],
)
def test_objects_that_are_no_arrays_are_refused(value: Any) -> None:
    if value == "text":
        assert LoDTensor("text").shape == ()
        return
    with pytest.raises(ConfigTypeError, match="LoDTensor"):
        LoDTensor(value)


def test_lists_of_numbers_become_tensors() -> None:
    assert LoDTensor([[1, 2], [3, 4]]).numpy().tolist() == [[1, 2], [3, 4]]
    assert LoDTensor(5).shape == ()
    assert LoDTensor(bytearray(b"abc")).shape == (3,)
    assert LoDTensor((ctypes.c_int * 3)(1, 2, 3)).numpy().tolist() == [1, 2, 3]


def test_level_of_detail_is_checked_and_given_as_lengths() -> None:
    rows = np.zeros((7, 2))
    tensor = LoDTensor(rows, lod=[[0, 2, 3], [0, 3, 3, 7]])
    assert tensor.lod == [[0, 2, 3], [0, 3, 3, 7]]
    assert tensor.recursive_sequence_lengths == [[2, 1], [3, 0, 4]]
    assert LoDTensor(tensor).lod == tensor.lod
    assert pickle.loads(pickle.dumps(tensor)).lod == tensor.lod
    assert copy.deepcopy(tensor).lod == tensor.lod
    assert "lod=" in repr(tensor)
    for lod, text in (
        ([[1, 7]], "begin with 0"),
        ([[0, 5, 3, 7]], "never decrease"),
        ([[0, 6]], "last offset of lod level 0 must be 7, .*rows.* got 6"),
        ([[0, 1], [0, 3, 7]], "last offset of lod level 0 must be 2, .*sequences.* got 1"),
        ([[]], "begin with 0"),
    ):
        with pytest.raises(ConfigError, match=text):
            LoDTensor(rows, lod=lod)
    tensor.set_lod([])
    assert tensor.lod == []


def test_place_other_than_the_cpu_is_refused() -> None:
    with pytest.raises(ConfigError, match="gpu"):
        LoDTensor([1], place="gpu:0")
    assert LoDTensor([1]).place == "cpu"


def test_array_protocol_converts_and_copies_as_numpy_asks() -> None:
    tensor = LoDTensor(np.arange(3.0))
    assert np.asarray(tensor, dtype="f4").dtype == np.float32
    assert np.array(tensor).ctypes.data != address(tensor)
    if IS_NUMPY_2:  # for others copy=False is a wish
        with pytest.raises(ValueError, match="copy"):
            np.array(tensor, dtype="f4", copy=False)
    assert tensor.__array_interface__["data"][0] == address(tensor)


def test_lod_tensor_array_is_a_sequence_and_takes_more() -> None:
    batch = LoDTensorArray([np.ones(2), [1, 2, 3]])
    batch.append(np.zeros((1, 1)))
    assert [tensor.shape for tensor in batch] == [(2,), (3,), (1, 1)]
    assert len(batch) == 3
    assert batch[-1].shape == (1, 1)
    with pytest.raises(IndexError):
        batch[3]
    nested = LoDTensorArray.from_batch({"a": np.ones(2), "b": ["x", np.zeros(1)]})
    assert len(nested) == 2
    with pytest.raises(TypeError, match="fixed number"):
        nested.append(np.ones(1))
    restored = nested.restore(lambda tensor: tensor.shape)
    assert restored == {"a": (2,), "b": ["x", (1,)]}
    shared = nested.restore()["a"]
    assert shared.ctypes.data == address(nested[0])


def test_09_views_made_and_dropped_in_many_threads() -> None:
    with DataLoader(Rows(8), batch_size=8, num_workers=1) as loader:
        batches = iter(loader)
        box = [next(batches)[0]]
        start = threading.Barrier(4)

        def work() -> None:
            start.wait(40)
            for _ in range(300):
                one = np.from_dlpack(box[0])
                two = memoryview(box[0])[1:]
                three = LoDTensor(box[0])
                capsule = three.__dlpack__()
                del one, three, two, capsule

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
        assert loader.stats()["arena"]["held_slots"] == 1
        assert box[0][3, 0] == 3
        box.clear()
        gc.collect()
        assert loader.stats()["arena"]["held_slots"] == 0


def test_reshape_views_the_same_bytes() -> None:
    tensor = LoDTensor(np.arange(6, dtype=np.int32), lod=[[0, 2, 6]])
    for shape in ((2, 3), [3, -1], (-1, 1), (6,), (1, 2, 3)):
        made = tensor.reshape(shape)
        assert made.shape == np.arange(6).reshape(shape).shape
        assert made.lod == []
        assert np.shares_memory(made.numpy(), tensor.numpy())
        assert made.numpy().ravel().tolist() == list(range(6))
    assert LoDTensor(np.float32(3)).reshape([]).shape == ()
    assert LoDTensor(np.empty((0, 4))).reshape((2, 0)).shape == (2, 0)


@pytest.mark.parametrize("shape", [(5,), (4, -1), (-1, -1), (-2, -3), (0, -1), ()])
def test_reshape_to_another_number_of_elements_is_refused(shape: Any) -> None:
    with pytest.raises(ConfigError, match=r"shape \(6,\) the shape .* it has 6 elements"):
        LoDTensor(np.arange(6)).reshape(shape)


def test_tensor_released_by_a_thread_without_the_interpreter_is_released() -> None:
    owner = np.zeros(8)
    seen = weakref.ref(owner)
    tensor = LoDTensor(owner)
    capsule = tensor.__dlpack__()
    del owner, tensor
    assert seen() is not None
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    assert name(capsule) == b"dltensor"
    managed = pointer(capsule, b"dltensor")
    used = b"used_dltensor"
    rename(capsule, used)
    # a DLManagedTensor is 48 bytes of tensor, the context, and the deleter
    address = ctypes.c_void_p.from_address(managed + 56).value
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)  # called without the GIL
    deleter(managed)
    for _ in range(1000):  # the main thread does it later
        if seen() is None:
            break
    assert seen() is None
