"""`tf.train.Example`: a message of protobuf whose features are lists of bytes, floats or whole numbers.

Imports NumPy alone, and keeps no state. Every read is compared with the end of the message it is in, so that
no bytes can lead out of them. Sources: TensorFlow's `example.proto`, and protobuf's page on its encoding. A
message is a row of fields: a key, which is 8 times a number and a kind, and a value of that kind.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np

cdef enum Kind:  # of a field
    VARINT = 0
    BITS64 = 1
    BYTES = 2
    BITS32 = 5

cdef enum:  # numbers of the fields of the messages here
    FIRST = 1
    FEATURE = 2  # of an entry: behind its name
    LISTS = 2  # of a SequenceExample, where an Example has none
    OF_BYTES = 1
    OF_FLOATS = 2
    OF_INTS = 3
    LONGEST = 10  # bytes of a number

cdef struct Message:
    const uint8_t* at
    const uint8_t* end

cdef struct Field:
    uint64_t number
    int kind
    uint64_t value  # of VARINT
    Message content  # of all other kinds


cdef int _number(Message* message, uint64_t* found) except -1:
    """Take a number of seven bits a byte from a message."""
    cdef int shift
    cdef uint8_t byte
    found[0] = 0
    for shift in range(0, 7 * LONGEST, 7):
        if message.at == message.end:
            raise ValueError("a number is cut off")
        byte = message.at[0]
        message.at += 1
        found[0] |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return 0
    raise ValueError("a number has more than 64 bits")


cdef int _next(Message* message, Field* found) except -1:
    """Take a field from a message; return 0 where it has none left."""
    cdef uint64_t key, nbytes
    if message.at == message.end:
        return 0
    _number(message, &key)
    found.number, found.kind = key >> 3, key & 7
    if found.kind == VARINT:
        _number(message, &found.value)
        return 1
    if found.kind == BYTES:
        _number(message, &nbytes)
    elif found.kind == BITS32 or found.kind == BITS64:
        nbytes = 4 if found.kind == BITS32 else 8
    else:
        raise ValueError(f"a field has the kind {found.kind}")
    if nbytes > <uint64_t>(message.end - message.at):
        raise ValueError("a field is longer than its message")
    found.content.at = message.at
    message.at += nbytes
    found.content.end = message.at
    return 1


cdef int _require(Field* field, int kind) except -1:
    if field.kind != kind:
        raise ValueError("a field has another kind than it must have")
    return 0


def features_of(bytes example not None, names, frozenset numbers not None):
    """Return the features of an Example by name: a list of bytes, of floats or of whole numbers.

    Args:
        example: the message.
        names: those that are wanted; None: all.
        numbers: those of which floats and whole numbers are an array of float32 or int64, and no list.

    Raises:
        ValueError: it is no Example.
    """
    cdef Message message, features
    cdef Field field, entry
    cdef dict found = {}
    message.at = <const uint8_t*>PyBytes_AS_STRING(example)
    message.end = message.at + PyBytes_GET_SIZE(example)
    while _next(&message, &field):
        if field.number == LISTS:
            raise ValueError("it has lists of features, as tf.train.SequenceExample, not read")
        if field.number != FIRST:
            continue
        _require(&field, BYTES)
        features = field.content
        while _next(&features, &entry):
            if entry.number == FIRST:
                _require(&entry, BYTES)
                _take_entry(entry.content, names, numbers, found)
    return found


cdef int _take_entry(Message entry, object names, frozenset numbers, dict found) except -1:
    """Put a feature into a dict by its name, if that is wanted."""
    cdef Field field
    cdef Message name, feature
    name.at = name.end = feature.at = feature.end = entry.at
    while _next(&entry, &field):
        if field.number == FIRST:
            _require(&field, BYTES)
            name = field.content
        elif field.number == FEATURE:
            _require(&field, BYTES)
            feature = field.content
    text = _bytes(name).decode()
    if names is None or text in names:
        found[text] = _values(feature, text in numbers)
    return 0


cdef bytes _bytes(Message content):
    return PyBytes_FromStringAndSize(<const char*>content.at, content.end - content.at)


cdef object _values(Message feature, bint is_array):
    """Return the values of a feature, of the last kind that it has."""
    cdef Field field, value
    cdef Message values
    cdef uint64_t kind = OF_BYTES
    cdef list found = []
    while _next(&feature, &field):
        if not OF_BYTES <= field.number <= OF_INTS:
            continue
        _require(&field, BYTES)
        if field.number != kind:
            kind, found = field.number, []
        values = field.content
        while _next(&values, &value):
            if value.number != FIRST:
                continue
            if kind == OF_BYTES:
                _require(&value, BYTES)
                found.append(_bytes(value.content))
            elif kind == OF_FLOATS:
                _take_floats(&value, found, is_array)
            else:
                _take_whole_numbers(&value, found, is_array)
    if not is_array or kind == OF_BYTES:
        return found
    content = found[0] if len(found) == 1 else b"".join(found)
    return np.frombuffer(content, np.float32 if kind == OF_FLOATS else np.int64)


cdef int _take_floats(Field* field, list found, bint is_array) except -1:
    """Add a float, or those that lie one behind the other; of an array their bytes."""
    cdef Message content = field.content
    cdef float number
    if field.kind != BITS32:
        _require(field, BYTES)
    if (content.end - content.at) % sizeof(float):
        raise ValueError("a float is cut off")
    if is_array:
        found.append(_bytes(content))
        return 0
    while content.at != content.end:
        memcpy(&number, content.at, sizeof(float))
        found.append(number)
        content.at += sizeof(float)
    return 0


cdef int _take_whole_numbers(Field* field, list found, bint is_array) except -1:
    """Add a number, or those that lie one behind the other; of an array their bytes."""
    cdef Message content = field.content
    cdef uint64_t number
    cdef bytes numbers
    cdef char* at
    cdef Py_ssize_t count = 0
    cdef const uint8_t* byte
    if field.kind == VARINT:
        if is_array:
            found.append(PyBytes_FromStringAndSize(<char*>&field.value, sizeof(int64_t)))
        else:
            found.append(<int64_t>field.value)
        return 0
    _require(field, BYTES)
    if not is_array:
        while content.at != content.end:
            _number(&content, &number)
            found.append(<int64_t>number)
        return 0
    byte = content.at
    while byte != content.end:  # each number ends with a byte below 0x80
        count += byte[0] < 0x80
        byte += 1
    numbers = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
    at = PyBytes_AS_STRING(numbers)
    while content.at != content.end:  # no more numbers than were counted: one that has no end is refused
        _number(&content, &number)
        memcpy(at, &number, sizeof(int64_t))
        at += sizeof(int64_t)
    found.append(numbers)
    return 0
