"""Structure of a batch: flatten into array fields and restore, container types included.

Imports numpy, cloudpickle and exchange. A Structure is immutable, hashable and picklable, and is
sent with its batch. Threads share nothing here except the registries, which are written at import
time or by the user before loading starts.
"""
import copy
import dataclasses
import importlib
import pickle
import sys
from collections.abc import Mapping, Sequence

import cloudpickle
import numpy as np

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject

from reader._core.batch.dlpack cimport rd_dl_tensor
from reader._core.batch.exchange cimport is_plain, is_usual, look, rd_view, span_of, tensor_view

from reader.errors import CollateError

cnp.import_array()

cdef object NONE = type(None)

# type -> (flatten, restore), see register_container
_containers = {}
# top-level module name -> converter, see register_array_converter
_converters = {}
# type -> converter or None: the cached look-up in _converters
_converter_of_type = {}


def register_container(cls, flatten, restore):
    """Make instances of ``cls`` containers whose children are flattened on their own.

    ``flatten(value)`` returns ``(children, extra)``: a list, and any picklable and hashable value;
    ``restore(children, extra)`` makes the value again. Register before loading starts, and in worker
    processes too: a call in the module that defines ``cls`` does both. Subclasses are not covered. Raises
    TypeError when ``cls`` is not a type or the functions are not callable.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_container needs a type, got {cls!r}")
    if not callable(flatten) or not callable(restore):
        raise TypeError(f"flatten and restore must be callable, got {flatten!r} and {restore!r}")
    _containers[cls] = (flatten, restore)


def register_array_converter(module, converter):
    """Register a converter for tensor types: a hook for packages above the core.

    ``converter(value)`` gets any value whose type comes from top-level ``module``, and returns
    ``(ndarray, dtype_name or None, lod)`` without a copy where possible, or None when it is no
    tensor; ``lod`` is a list of row offsets by level, empty for a tensor that is not ragged.
    """
    _converters[module] = converter
    _converter_of_type.clear()


def plain_value(value):
    """Return a value without arrays with plain dicts and lists in place of other containers."""
    if isinstance(value, (str, bytes, np.generic)):
        return value
    if isinstance(value, Mapping):
        return {key: plain_value(value[key]) for key in value}
    if isinstance(value, Sequence):
        return [plain_value(part) for part in value]
    return value


class Ragged:
    """The container of a ragged field: its rows, and the offsets of its samples. The tensor module
    registers how it is restored."""


cdef class Unwritten:
    """A field that is no array yet, a leaf of a batch: its writer assembles it in the slot."""


cdef object foreign_converter(object value):
    """Return the converter of the value's type, or None for types that are no tensors."""
    cls = type(value)
    try:
        return _converter_of_type[cls]
    except KeyError:
        pass
    found = None
    for base in cls.__mro__:
        found = _converters.get((base.__module__ or "").partition(".")[0])
        if found is not None:
            break
    _converter_of_type[cls] = found
    return found


@cython.final
cdef class Aliases:
    """Finds containers and fields that a batch has at two places, while it is flattened.

    The first walk only finds whether there are any, at little cost. Then a second walk numbers containers
    and fields by the ids of their objects, which the batch keeps alive.
    """

    def __cinit__(self):
        self.lowest = NOWHERE

    cdef Structure enter(self, object value, list objects):
        """Return the node of a container that was met before; None for a new one, which is open until
        `leave`."""
        if self.numbers is None:
            if not self.found:
                self.found = self.met.add(<PyObject*>value)
            # unused after the first walk: the second one makes the nodes
            return node(OBJECT, 0, None, None, None, None) if self.found else None
        found = self.numbers.get(id(value))
        if found is None:
            self.numbers[id(value)] = len(self.containers)
            self.open_.append(len(self.containers))
            self.containers.append(value)
            return None
        if found == NOWHERE:
            objects.append(value)
            return node(OBJECT, len(objects) - 1, None, None, None, None)
        if found in self.open_:
            self.lowest = min(self.lowest, <Py_ssize_t>found)
            if not can_begin_empty(value):
                self.holds_loop = True
        else:
            self.count += 1
        return node(AGAIN, found, None, None, None, None)

    cdef int leave(self, bint is_whole) except -1:
        """Close the container that was entered last; ``is_whole``: it and all within became an object."""
        number = self.open_.pop()
        if is_whole:
            for value in self.containers[number:]:
                self.numbers[id(value)] = NOWHERE
        return 0


cdef Structure field_node(object value, list fields, Aliases aliases):
    """Return the node of a field; adds the field unless it is there already."""
    cdef Py_ssize_t index = len(fields)
    if aliases is not None:
        aliases.count += 1
        if aliases.numbers is None:
            aliases.found = aliases.found or aliases.met.add(<PyObject*>value)
        else:
            index = aliases.numbers.setdefault(id(value), index)
    if index == len(fields):
        fields.append(value)
    return node(FIELD, index, None, None, None, None)


cdef bint can_begin_empty(object value) noexcept:
    """Whether a container can be made before its children, so that it may hold itself."""
    return type(value) is list or type(value) is dict


cdef Structure node(int kind, int index, object cls, tuple keys, object extra, list children):
    cdef Structure self = Structure.__new__(Structure)
    self.kind = kind
    self.index = index
    self.cls = cls
    self.keys = keys
    self.extra = extra
    self.children = children
    self.hash_value = -1
    return self


@cython.final
cdef class Structure:
    """The containers of a batch, with numbered places for its fields and objects."""

    def __init__(self):
        raise TypeError("a Structure is made by flatten()")

    def restore(self, fields, objects=()):
        """Put ``fields`` and ``objects`` (sequences, in flatten's order) back into the containers."""
        return self.build(list(fields), list(objects), None)

    @cython.boundscheck(True)
    cdef object build(self, list fields, list objects, list made_before):
        """``made_before``: containers by their numbers; None: none is at two places."""
        cdef Structure child
        cdef int kind = self.kind
        if kind == FIELD:
            return fields[self.index]
        if kind == OBJECT:
            return objects[self.index]
        if self.index >= 0:
            return self.build_once(fields, objects, made_before)
        if kind == TUPLE and self.cls is tuple:
            if len(self.children) == 2:
                return ((<Structure>self.children[0]).build(fields, objects, made_before),
                        (<Structure>self.children[1]).build(fields, objects, made_before))
            return tuple([(<Structure>child).build(fields, objects, made_before) for child in self.children])
        if kind == DICT:
            if self.cls is dict:
                made = {}
            elif self.extra is None:
                return self.cls({
                    key: (<Structure>child).build(fields, objects, made_before)
                    for key, child in zip(self.keys, self.children)
                })
            else:
                made = copy.copy(self.extra)
            for key, child in zip(self.keys, self.children):
                made[key] = (<Structure>child).build(fields, objects, made_before)
            return made
        values = [(<Structure>child).build(fields, objects, made_before) for child in self.children]
        if kind == LIST:
            return values if self.cls is list else self.cls(values)
        if kind == TUPLE:
            try:
                return self.cls(values)
            except TypeError:  # such as torch.Size, which holds only integers
                return tuple(values)
        if kind == NAMEDTUPLE:
            return self.cls._make(values)
        if kind == DATACLASS:
            made = self.cls.__new__(self.cls)
            for name, value in zip(self.keys, values):
                object.__setattr__(made, name, value)
            return made
        return _containers[self.cls][1](values, self.extra)

    cdef object build_once(self, list fields, list objects, list made_before):
        """Return a container that has a number: made now, or at an earlier place."""
        cdef Structure child
        if self.kind == GRAPH:
            return (<Structure>self.children[0]).build(fields, objects, [None] * self.index)
        if self.kind == AGAIN:
            return made_before[self.index]
        # if it contains itself, it is asked for before its children are complete
        if self.cls is list:
            made = made_before[self.index] = []
            for child in self.children:
                made.append(child.build(fields, objects, made_before))
        elif self.cls is dict:
            made = made_before[self.index] = {}
            for key, child in zip(self.keys, self.children):
                made[key] = child.build(fields, objects, made_before)
        else:
            child = node(self.kind, -1, self.cls, self.keys, self.extra, self.children)
            made = made_before[self.index] = child.build(fields, objects, made_before)
        return made

    def plain(self):
        """Return the structure with only dicts and lists: subclasses, tuples, namedtuples and other
        sequences lose their types. Dataclasses and registered containers stay."""
        cdef Structure child
        if self.children is None:
            return self
        if self.its_plain is None:
            children = [child.plain() for child in self.children]
            if self.kind == DICT:
                made = node(DICT, self.index, dict, self.keys, None, children)
            elif self.kind == DATACLASS or self.kind == CUSTOM or self.kind == GRAPH:
                made = node(self.kind, self.index, self.cls, self.keys, self.extra, children)
            else:
                made = node(LIST, self.index, list, None, None, children)
            with cython.critical_section(self):  # written once: others read it without a lock
                if self.its_plain is None:
                    self.its_plain = made
        return self.its_plain

    def listed(self):
        """Return the structure with lists in place of tuples; named tuples stay."""
        if self.children is None:
            return self
        children = [child.listed() for child in self.children]
        if self.kind == TUPLE:
            return node(LIST, self.index, list, None, None, children)
        return node(self.kind, self.index, self.cls, self.keys, self.extra, children)

    def paths(self):
        """Return the paths of the fields and of the objects: two lists of texts such as ``['x'][0]``. A
        value at two places has the path of the first."""
        fields, objects = {}, {}
        self._name_places("", fields, objects)
        return [fields[k] for k in sorted(fields)], [objects[k] for k in sorted(objects)]

    def _name_places(self, prefix, fields, objects):
        if self.kind == FIELD:
            fields.setdefault(self.index, prefix)
        elif self.kind == OBJECT:
            objects[self.index] = prefix
        elif self.kind != AGAIN:
            for place, child in zip(self.child_names(), self.children):
                child._name_places(prefix + place, fields, objects)

    def child_names(self):
        """Return the children's names as index expressions."""
        if self.kind == DATACLASS:
            return [f".{key}" for key in self.keys]
        if self.kind == NAMEDTUPLE:
            return [f".{key}" for key in self.cls._fields]
        if self.kind == DICT:
            return [f"[{key!r}]" for key in self.keys]
        return [""] if self.kind == GRAPH else [f"[{i}]" for i in range(len(self.children))]

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, Structure):
            return NotImplemented
        cdef Structure that = other
        return (self.kind == that.kind and self.index == that.index and self.cls is that.cls
                and self.keys == that.keys
                and (self.kind != CUSTOM or self.extra == that.extra)
                and self.children == that.children)

    def __hash__(self):
        if self.hash_value == -1:
            self.hash_value = hash((
                self.kind, self.index, self.cls, self.keys,
                tuple(self.children) if self.children is not None else None,
            ))
        return self.hash_value

    def __reduce__(self):
        cls = None if self.cls is None else _pack_class(self.cls)
        return _unpack_node, (self.kind, self.index, cls, self.keys, self.extra, self.children)

    def __repr__(self):
        if self.kind == FIELD:
            return f"field {self.index}"
        if self.kind == OBJECT:
            return f"object {self.index}"
        if self.kind == AGAIN:
            return f"container {self.index} again"
        if self.kind == GRAPH:
            return repr(self.children[0])
        inner = ", ".join(f"{name}: {child!r}" for name, child in
                          zip(self.child_names(), self.children))
        return f"{self.cls.__name__}({inner})"


def _unpack_node(kind, index, cls, keys, extra, children):
    return node(kind, index, None if cls is None else _find_class(*cls), keys, extra, children)


def _pack_class(cls):
    """Return how another process finds a class: (module, qualified name, base, pickled or None)."""
    base = tuple if issubclass(cls, tuple) else dict if issubclass(cls, dict) else (
        list if issubclass(cls, list) else object)
    try:
        pickle.dumps(cls)
        return cls.__module__, cls.__qualname__, base, None
    except (pickle.PicklingError, AttributeError, TypeError):
        return cls.__module__, cls.__qualname__, base, cloudpickle.dumps(cls)


def _find_class(module, qualname, base, pickled):
    """Return the class itself if this process has it (a local one after a fork), else a copy."""
    if pickled is None:
        found = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
        return found
    pending = list(type.__subclasses__(base))
    while pending:
        cls = pending.pop()
        if cls.__qualname__ == qualname and cls.__module__ == module:
            return cls
        if base is not object:
            pending.extend(type.__subclasses__(cls))
    return pickle.loads(pickled)


cdef bint is_masked(object array) except -1:
    """Whether an array is masked. Does not import numpy.ma: without it there are none."""
    ma = sys.modules.get("numpy.ma")
    return ma is not None and isinstance(array, ma.MaskedArray)


cdef int container_kind(object value) except -1:
    """Return DICT, LIST, TUPLE, NAMEDTUPLE, DATACLASS or CUSTOM; OBJECT if it is no container."""
    cls = type(value)
    if cls is tuple:
        return TUPLE
    if cls is dict:
        return DICT
    if cls is list:
        return LIST
    if _containers and cls in _containers:
        return CUSTOM
    if isinstance(value, tuple):
        return NAMEDTUPLE if hasattr(cls, "_fields") and hasattr(cls, "_make") else TUPLE
    if isinstance(value, list):
        return LIST
    if isinstance(value, Mapping):
        return DICT
    if hasattr(cls, "__dataclass_fields__"):
        return DATACLASS
    return OBJECT


cdef list container_children(int kind, object value):
    if kind == DICT:
        return [value[key] for key in value]
    if kind == DATACLASS:
        return [getattr(value, name) for name in type(value).__dataclass_fields__
                if hasattr(value, name)]
    if kind == CUSTOM:
        return list(_containers[type(value)][0](value)[0])
    return list(value)


cdef Structure make_container(int kind, object value, list children):
    """Return the node of a container with these child nodes."""
    cls = type(value)
    if kind == DICT:
        extra = None
        if cls is not dict and hasattr(value, "clear"):
            extra = copy.copy(value)
            extra.clear()
        return node(DICT, -1, cls, tuple(value), extra, children)
    if kind == DATACLASS:
        names = tuple([name for name in cls.__dataclass_fields__ if hasattr(value, name)])
        return node(DATACLASS, -1, cls, names, None, children)
    if kind == CUSTOM:
        return node(CUSTOM, -1, cls, None, _containers[cls][0](value)[1], children)
    return node(kind, -1, cls, None, None, children)


cdef Structure _flatten(object value, list fields, list objects, int depth, Aliases aliases):
    """Flatten one value; a container without arrays stays whole, as one object."""
    cdef int kind
    cdef list children
    cdef Structure again, made
    cdef Py_ssize_t nfields, nobjects, count = 0, lowest = NOWHERE, number = -1
    cdef bint is_whole
    if isinstance(value, Unwritten):
        return field_node(value, fields, aliases)
    if isinstance(value, np.ndarray):
        # a masked array stays whole: the bytes of an array have no mask
        if not value.dtype.hasobject and (
                type(value) is np.ndarray or not is_masked(value)):
            return field_node(value, fields, aliases)
        objects.append(value)
        return node(OBJECT, len(objects) - 1, None, None, None, None)
    kind = container_kind(value)
    if kind == OBJECT:
        converter = foreign_converter(value)
        found = None if converter is None else converter(value)
        if found is not None:
            leaf = field_node(value, fields, aliases)
            if not found[2]:
                return leaf
            objects.append(found[2])  # the row offsets are sent beside the rows
            offsets = node(OBJECT, len(objects) - 1, None, None, None, None)
            return node(CUSTOM, -1, Ragged, None, None, [leaf, offsets])
        objects.append(value)
        return node(OBJECT, len(objects) - 1, None, None, None, None)
    if depth == MAX_DEPTH:
        raise CollateError(
            f"the batch is nested deeper than {MAX_DEPTH} levels, or a {type(value).__name__} in it "
            f"contains itself; flatten it, or send it pickled as bytes")
    if holds_leaves_only(value):
        objects.append(value)
        return node(OBJECT, len(objects) - 1, None, None, None, None)
    if aliases is not None:
        again = aliases.enter(value, objects)
        if again is not None:
            return again
        if aliases.numbers is not None:
            number = len(aliases.containers) - 1
        count, lowest = aliases.count, aliases.lowest
        aliases.lowest = NOWHERE
    nfields, nobjects = len(fields), len(objects)
    children = [_flatten(child, fields, objects, depth + 1, aliases)
                for child in container_children(kind, value)]
    is_whole = len(fields) == nfields
    if number >= 0:
        # nor may it hold an object that is elsewhere in the batch
        is_whole = aliases.count == count and aliases.lowest >= number
        aliases.leave(is_whole)
    if aliases is not None:
        aliases.lowest = lowest if is_whole else min(lowest, aliases.lowest)
    if is_whole:
        del objects[nobjects:]
        objects.append(value)
        return node(OBJECT, len(objects) - 1, None, None, None, None)
    made = make_container(kind, value, children)
    made.index = <int>number
    return made


cdef int exact_kind(object value) except -1:
    """Return the kind of a container that its children define completely; OBJECT for all others."""
    cls = type(value)
    if cls is dict:
        for key in <dict>value:
            # 1 and True are the same key: structures that differ only in that would be equal
            if type(key) is not str and type(key) is not int:
                return OBJECT
        return DICT
    if cls is list:
        return LIST
    if cls is tuple:
        return TUPLE
    if _containers and cls in _containers:
        return CUSTOM
    return NAMEDTUPLE if is_named_tuple(cls) else OBJECT


def is_named_tuple(cls):
    """Whether a class is made by namedtuple or NamedTuple, and is copied field by field."""
    return (getattr(cls, "__bases__", None) == (tuple,) and hasattr(cls, "_fields")
            and hasattr(cls, "_make") and "__reduce__" not in vars(cls)
            and "__reduce_ex__" not in vars(cls))


cdef bint is_leaf_class(object cls) noexcept:
    return cls is str or cls is int or cls is float or cls is bool or cls is bytes or cls is NONE


cdef bint holds_leaves_only(object value) except -1:
    """Whether a value is a list or tuple of only numbers and texts. It stays one object, without a node
    for each item."""
    if type(value) is not list and type(value) is not tuple:
        return False
    for child in value:
        if not is_leaf_class(type(child)):
            return False
    return True


cdef bint holds_fields(object value, int depth, rd_met* met) except -1:
    """Whether _flatten_exact would find a field in a value; ``met``: the containers searched so far."""
    cdef rd_dl_tensor tensor
    cdef rd_view view
    cls = type(value)
    if is_leaf_class(cls):
        return False
    view = tensor_view(cls)
    if view is not NULL:
        return is_plain(view, value, &tensor)
    if cls is np.ndarray:
        return is_plain_array(value)
    if isinstance(value, Unwritten):
        return True
    if depth >= MAX_DEPTH:
        return False
    kind = LIST if cls is list else exact_kind(value)
    if kind == OBJECT or met.add(<PyObject*>value):
        return False
    if cls is list:
        for child in <list>value:
            if holds_fields(child, depth + 1, met):
                return True
        return False
    for child in container_children(kind, value):
        if holds_fields(child, depth + 1, met):
            return True
    return False


cdef Structure _flatten_exact(object value, list fields, list objects, int depth, Aliases aliases):
    """As _flatten, but a container that is more than its children stays whole."""
    cdef int kind
    cdef list children
    cdef Structure made
    cdef Py_ssize_t number = -1
    cdef rd_dl_tensor tensor
    cdef rd_met met
    cdef rd_view view = tensor_view(type(value))
    if view is not NULL:
        if is_plain(view, value, &tensor):
            number = len(fields)
            made = field_node(value, fields, aliases)
            if len(fields) > number:
                aliases.spans.add(tensor.data, span_of(&tensor))
            return made
        if is_usual(value) and look(view, value, &tensor):
            aliases.spans.add(tensor.data, span_of(&tensor))
    elif isinstance(value, Unwritten) or (type(value) is np.ndarray and is_plain_array(value)):
        return field_node(value, fields, aliases)
    elif holds_fields(value, depth, &met):
        kind = exact_kind(value)
        made = aliases.enter(value, objects)
        if made is not None:
            return made
        if aliases.numbers is not None:
            number = len(aliases.containers) - 1
        children = [_flatten_exact(child, fields, objects, depth + 1, aliases)
                    for child in container_children(kind, value)]
        if number >= 0:
            aliases.leave(False)
        made = make_container(kind, value, children)
        made.index = <int>number
        return made
    objects.append(value)
    return node(OBJECT, len(objects) - 1, None, None, None, None)


cpdef bint is_plain_array(cnp.ndarray array):
    """Whether its bytes, shape and element type restore an array exactly."""
    type = array.dtype
    return type.kind in "biufcmM" and type.isnative and cnp.PyArray_IS_C_CONTIGUOUS(array)


@cython.final
cdef class Flat:
    """What flatten() returns: ``fields`` (arrays and tensors), ``objects`` and ``structure``."""

    def __iter__(self):
        return iter((self.fields, self.objects, self.structure))

    cdef int keep_whole(self, object value) except -1:
        """Make the whole batch one object."""
        self.fields, self.objects = [], [value]
        self.structure = node(OBJECT, 0, None, None, None, None)
        return 0


def flatten(value, bint exact=False, bint keeps_aliases=False):
    """Flatten a batch: return a Flat, which unpacks into (fields, objects, structure).

    Arrays and tensors become fields, in depth-first order. A container that holds no array
    anywhere stays whole, as one object, as does anything that is no container. Dicts, lists,
    tuples, namedtuples, dataclasses, their subclasses and registered containers are flattened;
    ``structure.restore(fields, objects)`` restores them with their types. Raises CollateError (a
    ValueError) for one nested deeper than 100 levels, such as one that contains itself.

    ``keeps_aliases``: an array or container at two places is restored as one at two places, also a list
    or dict within itself; a tuple within itself raises CollateError.

    ``exact``: aliases, types, strides and attributes must be restored, too: only plain dicts, lists,
    tuples and named tuples are flattened, only plain arrays and torch tensors in C order are fields, and
    all else is an object, as is the whole batch where tensors share memory. It raises nothing.
    """
    cdef Flat flat = Flat.__new__(Flat)
    cdef Aliases aliases = Aliases.__new__(Aliases) if exact or keeps_aliases else None
    flatten_into(flat, value, exact, aliases)
    if aliases is not None and aliases.found:
        aliases = Aliases.__new__(Aliases)
        aliases.numbers, aliases.containers, aliases.open_ = {}, [], []
        flatten_into(flat, value, exact, aliases)
        if aliases.holds_loop and not exact:
            refuse_loop()
        flat.structure = node(GRAPH, <int>len(aliases.containers), None, None, None, [flat.structure])
    if exact and (aliases.holds_loop or aliases.spans.overlap()):
        flat.keep_whole(value)
    return flat


def refuse_loop():
    """Raise CollateError for a container within itself that is no plain list or dict."""
    raise CollateError("the batch holds a container that contains itself and is no plain list or dict, such "
                       "as a tuple; use a list or a dict, or send the batch pickled as bytes")


cdef int flatten_into(Flat flat, object value, bint exact, Aliases aliases) except -1:
    flat.fields, flat.objects = [], []
    if exact:
        flat.structure = _flatten_exact(value, flat.fields, flat.objects, 0, aliases)
    else:
        flat.structure = _flatten(value, flat.fields, flat.objects, 0, aliases)
    return 0


def restore(structure, fields, objects=()):
    """The inverse of flatten: ``structure.restore(fields, objects)``."""
    return structure.restore(fields, objects)
