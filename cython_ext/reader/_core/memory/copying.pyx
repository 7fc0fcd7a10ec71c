"""How bytes get into a batch: through the cache or past it, or gathered row by row.

Imports errors; the copies themselves are in copying.h. The way to copy past the cache is chosen when the
module is imported; any thread may copy.
"""
import functools
import glob

cimport numpy as cnp
from libc.string cimport memcpy

from reader.errors import ConfigError

cnp.import_array()

cdef extern from "reader/_core/memory/copying.h" nogil:
    ctypedef void (*rd_copy_lines)(char* to, const char* source, size_t lines) noexcept nogil
    rd_copy_lines rd_copy_lines_of(int way) noexcept
    void rd_copy_uncached(rd_copy_lines lines, char* to, const char* source, size_t nbytes) noexcept
    void rd_gather(rd_copy_lines lines, char* to, const char* base, int64_t stride,
                   const int64_t* rows, size_t count, size_t nbytes) noexcept
    int rd_gather_items(char* to, const char* base, int64_t stride, const int64_t* rows,
                        size_t count, size_t nbytes) noexcept

cdef enum:
    USUAL_CACHE = 32 << 20     # where the system does not say

cdef tuple WAYS = ("plain", "sse2", "avx2", "avx512", "neon")
cdef rd_copy_lines the_lines = NULL
cdef int the_way = 0


def copy_ways():
    """Return the names of this machine's ways to copy: "plain", through the cache, and those past it."""
    return [name for way, name in enumerate(WAYS) if way == 0 or rd_copy_lines_of(way) is not NULL]


def copy_way():
    """Return the name of the way that is used."""
    return WAYS[the_way]


def choose_copy_way(name=None):
    """Copy past the cache in another way, for a test or a measurement; None: the widest.

    No other thread may copy meanwhile. ConfigError for a way that this machine does not have.
    """
    global the_way, the_lines
    ways = copy_ways()
    name = ways[len(ways) - 1] if name is None else name
    if name not in ways:
        raise ConfigError(f"cannot copy by {name!r}: this machine has {', '.join(ways)}")
    the_way = WAYS.index(name)
    the_lines = rd_copy_lines_of(the_way)


@functools.lru_cache(1)
def cache_nbytes():
    """Return the bytes of the last-level cache that processors share, or a usual size where unknown."""
    found = []
    for folder in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"):
        try:
            with open(f"{folder}/level") as level, open(f"{folder}/size") as size:
                found.append((int(level.read()), int(size.read().strip().removesuffix("K")) << 10))
        except (OSError, ValueError):
            continue
    return max(found)[1] if found else USUAL_CACHE


choose_copy_way()


def stack_uncached(arrays, cnp.ndarray out):
    """Stack arrays along the first axis of `out`, past the cache, for a measurement.

    All lie in C order and have one type. The GIL is released around each copy. ConfigError unless they
    fill `out` together.
    """
    cdef cnp.ndarray array
    cdef char* at = <char*>cnp.PyArray_DATA(out)
    cdef char* end = at + cnp.PyArray_NBYTES(out)
    cdef const char* source
    cdef size_t nbytes
    if not cnp.PyArray_IS_C_CONTIGUOUS(out) or not out.flags.writeable:
        raise ConfigError("cannot stack arrays: the target must lie in C order and be writable")
    for array in arrays:
        source = <const char*>cnp.PyArray_DATA(array)
        nbytes = <size_t>cnp.PyArray_NBYTES(array)
        if (nbytes > <size_t>(end - at) or array.dtype != out.dtype
                or not cnp.PyArray_IS_C_CONTIGUOUS(array)):
            raise ConfigError(f"cannot stack an array of {nbytes} bytes and dtype {array.dtype}: it must lie"
                              f" in C order, have dtype {out.dtype} and at most {end - at} bytes")
        with nogil:
            copy_bytes(at, source, nbytes, True)
        at += nbytes
    if at != end:
        raise ConfigError(f"the arrays leave {end - at} bytes of the target unwritten: pass one for each row")


cdef void copy_bytes(char* to, const char* source, size_t nbytes, bint is_uncached) noexcept nogil:
    """Copy bytes, past the cache if ``is_uncached`` and they are many; do nothing if they lie there already."""
    if to == source:
        return
    if is_uncached and nbytes >= UNCACHED_NBYTES:
        rd_copy_uncached(the_lines, to, source, nbytes)
    else:
        memcpy(to, source, nbytes)


cdef void copy_with_gil(char* to, const char* source, size_t nbytes, bint is_uncached) noexcept:
    """Copy bytes for a caller that has the GIL; it is released during large copies.

    ``source`` may be NULL where nbytes is 0: an empty tensor has no memory.
    """
    if nbytes > NOGIL_NBYTES:
        with nogil:
            copy_bytes(to, source, nbytes, is_uncached)
    elif nbytes:
        copy_bytes(to, source, nbytes, is_uncached)


cdef void gather_rows(char* to, const char* base, int64_t stride, const int64_t* rows, size_t count,
                      size_t nbytes, bint is_uncached) noexcept nogil:
    """Copy the rows with the given numbers end to end: see copying.h."""
    if not rd_gather_items(to, base, stride, rows, count, nbytes):
        rd_gather(the_lines if is_uncached and nbytes >= UNCACHED_NBYTES else NULL,
                  to, base, stride, rows, count, nbytes)
