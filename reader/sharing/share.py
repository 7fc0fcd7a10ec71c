"""`share`: a large object in shared memory, once for all processes that read it.

Imports the kinds of shared objects. Keeps no state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from reader.errors import ConfigError, ConfigTypeError, got
from reader.sharing.shared_array import SharedArray, share_array
from reader.sharing.shared_dict import SharedDict, share_dict
from reader.sharing.shared_list import SharedList, share_list
from reader.sharing.shared_table import is_shared_table, share_table, table_class

__all__ = ["share"]

# remedies for instances of subclasses
_PLAIN: dict[type, str] = {
    list: "list",
    tuple: "list",
    Mapping: "dict",
    np.ndarray: "numpy.asarray",
}
_TAKEN = "lists, tuples, dicts, arrays, and DataFrames or Series of pandas"


def share(obj: Any) -> Any:
    """Return a copy of a large object in shared memory, for all processes to read.

    A forked worker that reads a list of Python objects copies it page by page, since reading
    changes reference counts; under spawn and forkserver each worker gets its own copy from the
    start. A shared object lies in memory once. Keep it in the dataset in place of the list::

        self.paths = reader.share(paths)

    It behaves as the original list, tuple or dict, but cannot be changed. Each access makes the
    item anew: your changes of an item stay yours. Strings and numbers take fewer bytes than Python
    objects; tuples, lists and dicts of them are stored field by field; items of other types are
    pickled, which is slower to read. Processes that multiprocessing starts, and so the workers of
    any loader, get it by reference; plain `pickle` copies it. The memory has no name, and is freed
    with the last process that refers to it.

    Args:
        obj: the object to copy; drop it afterwards.

            - a list or tuple: of anything that can be pickled.
            - a dict: keys are strings, bytes, ints, floats, None, and tuples of those.
            - an array of NumPy: stays one, read-only. Arrays of Python objects, such as strings,
              and of StringDType become a list; so do arrays of pyarrow.
            - a DataFrame or Series of pandas: stays one. Columns of numbers, times and categories
              are shared as they are, strings as Arrow holds them (which needs pyarrow).

    Returns:
        The shared object; an object that is shared already itself.

    Raises:
        ConfigTypeError: an object or a key of another type, for example of a subclass.
        ConfigError: there is not that much memory, or an item cannot be pickled.
        ReaderError: the system refuses memory: each shared object takes one of the open files that
            a process may have (`ulimit -n`), so share many small ones as one list or dict.

    >>> paths = share(["a/1.jpg", "a/2.jpg", "b/1.jpg"])
    >>> paths[1], paths[1:], len(paths), "b/1.jpg" in paths
    ('a/2.jpg', ['a/2.jpg', 'b/1.jpg'], 3, True)
    >>> share({"a": (1, 0.5), "b": (2, 0.25)})["b"]
    (2, 0.25)
    """
    if isinstance(obj, (SharedList, SharedDict)):
        return obj
    if isinstance(obj, SharedArray) and obj._memory is not None:
        return obj
    table = table_class(obj)
    if table is not None and is_shared_table(obj):
        return obj
    if table is not None and type(obj) is table:
        return share_table(obj)
    if type(obj) in (list, tuple):
        return share_list(obj)
    if type(obj) in (dict, OrderedDict):
        return share_dict(obj)
    if type(obj) in (np.ndarray, np.memmap, SharedArray):
        return _share_array(obj)
    if hasattr(obj, "to_pylist") and hasattr(obj, "type"):  # an array of pyarrow
        return share_list(obj.to_pylist())
    plain = next((name for kind, name in _PLAIN.items() if isinstance(obj, kind)), None)
    if table is not None:
        plain = f"pandas.{table.__name__}"
    if plain is not None:
        raise ConfigTypeError(
            f"{got(obj)} is of a class of its own, {type(obj).__name__}, whose methods would be"
            f" lost: share {plain}(it)"
        )
    raise ConfigTypeError(f"share takes {_TAKEN}, got {got(obj)}: {_remedy(obj)}")


def _remedy(obj: Any) -> str:
    if hasattr(obj, "to_pandas"):
        return "pass it.to_pandas(), or read its rows by reader.TableRows(it)"
    if hasattr(obj, "numpy"):  # a tensor
        return "pass it.numpy(), of one on a device it.cpu().numpy()"
    if hasattr(obj, "__array__"):
        return "pass numpy.asarray(it)"
    if hasattr(obj, "__iter__"):
        return "pass list(it)"
    return "share it as an item of a list"


def _share_array(array: Any) -> Any:
    is_text = array.dtype.kind == "T"  # StringDType
    if not (array.dtype.hasobject or is_text):
        return share_array(np.asarray(array))
    if array.ndim != 1:
        raise ConfigError(
            f"an array of {'strings' if is_text else 'objects'} is shared as a list, and must have"
            f" one axis, got the shape {array.shape}: share its rows, or array.ravel()"
        )
    return share_list(array.tolist())
