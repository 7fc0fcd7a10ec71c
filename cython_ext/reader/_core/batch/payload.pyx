"""Pickle what a batch carries beside its arrays; name a value that cannot be pickled.

Imports structure and the Schema of tensor. Functions only; the worker's thread calls them.
"""
import pickle
import sys

from reader.errors import DatasetError


cdef bytes pickle_schema(Schema schema):
    try:
        return pickle.dumps(schema, 5)
    except Exception as error:
        raise DatasetError(
            f"cannot send the structure of the batch ({schema.structure!r}) to the main process: "
            f"{error}; use containers whose types and keys can be pickled") from error


cdef bytes pickle_attached(object value):
    try:
        return pickle.dumps(value, 5)
    except Exception as error:
        raise DatasetError(
            f"cannot send what belongs to the batch, a {type(value).__name__}, to the main "
            f"process: {error}; make it of objects that can be pickled") from error


cdef bytes pickle_objects(list objects, Structure structure, object pack=None, list fields=None):
    """Pickle the objects of a batch. ``pack(objects, fields)`` may add fields from within them; its
    RuntimeError passes through: torch raises it for tensors that it cannot send."""
    try:
        return pickle.dumps(objects, 5) if pack is None else pack(objects, fields)
    except Exception as error:
        if isinstance(error, RecursionError):
            raise DatasetError(
                f"cannot send the batch to the main process: an object in it is nested deeper than pickle "
                f"follows ({error}; the limit of Python's recursion is {sys.getrecursionlimit()}); flatten "
                f"it, or send it pickled as bytes") from error
        if pack is not None and isinstance(error, RuntimeError):
            raise
        dumps = pickle.dumps if pack is None else lambda value: pack(value, [])
        for value, where in zip(objects, structure.paths()[1]):
            culprit, its_error, where = find_culprit(value, where, dumps)
            if its_error is not None:
                raise DatasetError(
                    f"cannot send {'field ' + where if where else 'the value'} of the batch to the "
                    f"main process: a {type(culprit).__name__} cannot be pickled: {its_error}; "
                    f"return arrays, numbers, strings or objects that can be pickled") from its_error
        raise DatasetError(f"cannot send the batch to the main process: {error}") from error


cdef bytes pickle_flat(Flat flat, object batch, object pack):
    """Pickle the objects of a flattened batch; None: it has none. ``pack`` adds fields from within them. It
    returns None if these share memory with the batch's own: then the whole batch becomes one object."""
    cdef bytes packed
    if not flat.objects:
        return None
    packed = pickle_objects(flat.objects, flat.structure, pack, flat.fields)
    if packed is None:
        flat.keep_whole(batch)
        packed = pickle_objects(flat.objects, flat.structure, pack, flat.fields)
    return packed


def find_culprit(value, where, dumps, depth=0):
    """Find the innermost value that cannot be pickled: (value, exception or None, its path)."""
    try:
        dumps(value)
        return value, None, where
    except Exception as error:
        parts = ()
        if type(value) in (list, tuple):
            parts = [(f"{where}[{i}]", part) for i, part in enumerate(value)]
        elif type(value) is dict:
            parts = [(f"{where}[{key!r}]", part) for key, part in value.items()]
        for its_where, part in parts if depth < 8 else ():
            culprit, its_error, its_where = find_culprit(part, its_where, dumps, depth + 1)
            if its_error is not None:
                return culprit, its_error, its_where
        return value, error, where
