"""Best-fit packing of pieces of documents into rows of one length.

Imports the permutation. The longest pieces come first, and each goes to the row with the least rest that
holds it. How many rows that takes, and what rests in each, depends on how many pieces there are of each
length and on nothing else: so rows are counted from a histogram, without placing a piece, and pieces of
one length may change places.
"""
import numpy as np

cimport cython
cimport numpy as cnp
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector

from reader._core.random.permutation cimport Permutation

cnp.import_array()

ctypedef fused lengths_t:
    const int32_t
    const int64_t

cdef extern from *:
    """
    static inline int rd_first_bit(uint64_t word) { return __builtin_ctzll(word); }
    """
    int rd_first_bit(uint64_t word) noexcept nogil

cdef enum:
    SPLIT = 0     # a piece that fills a row, as often as a long document has one, and the rest
    TRUNCATE = 1  # the beginning of a long document
    DROP = 2      # nothing of it


@cython.nonecheck(False)  # of self: its numbers are changed in place without the GIL
cdef class _Rests:
    """How many rows have which rest: tokens that are free in them. The least rest that fits is found by bits.

    Args:
        length: of a row, the most that can rest.
    """

    cdef vector[uint64_t] bits, blocks
    cdef int64_t length

    def __cinit__(self, int64_t length):
        self.length = length
        self.bits.assign(length // 64 + 1, 0)
        self.blocks.assign(length // 4096 + 1, 0)

    cdef void note(self, int64_t rest) noexcept nogil:
        self.bits[rest >> 6] |= <uint64_t>1 << (rest & 63)
        self.blocks[rest >> 12] |= <uint64_t>1 << (rest >> 6 & 63)

    cdef void forget(self, int64_t rest) noexcept nogil:
        self.bits[rest >> 6] &= ~(<uint64_t>1 << (rest & 63))
        if self.bits[rest >> 6] == 0:
            self.blocks[rest >> 12] &= ~(<uint64_t>1 << (rest >> 6 & 63))

    cdef int64_t least(self, int64_t wanted) noexcept nogil:
        """Return the least rest that is `wanted` or more; -1: no row has one."""
        cdef int64_t word = wanted >> 6, block
        cdef uint64_t found = self.bits[word] & (~<uint64_t>0 << (wanted & 63))
        if found:
            return word * 64 + rd_first_bit(found)
        word += 1
        block = word >> 6
        if block >= <int64_t>self.blocks.size():
            return -1
        found = self.blocks[block] & (~<uint64_t>0 << (word & 63))
        while not found:
            block += 1
            if block >= <int64_t>self.blocks.size():
                return -1
            found = self.blocks[block]
        word = block * 64 + rd_first_bit(found)
        return word * 64 + rd_first_bit(self.bits[word])


@cython.final
@cython.nonecheck(False)
cdef class RowCounter:
    """Counts the rows of windows of documents.

    Args:
        length: tokens of a row.
        policy: what becomes of a longer document: 0: it is split, 1: truncated, 2: dropped.

    Attributes:
        tokens: all those of the documents that were counted.
        empty: how many documents have no token.
        long: how many are longer than a row.
        left_out: how many tokens come in no row, by the policy.
        most_pieces: no row has more pieces.
        longest: the number of the longest document; -1: there was none.
    """

    cdef readonly int64_t tokens, empty, long, left_out, most_pieces, longest
    cdef int64_t length, most_tokens
    cdef int policy
    cdef _Rests rests
    cdef vector[int64_t] pieces, rows, most

    def __cinit__(self, int64_t length, int policy):
        self.length, self.policy = length, policy
        self.longest, self.most_tokens = -1, -1
        self.rests = _Rests(length)
        self.pieces.assign(length + 1, 0)
        self.rows.assign(length + 1, 0)
        self.most.assign(length + 1, 0)

    def count(self, lengths_t[::1] lengths, const int64_t[::1] begins not None, int64_t run):
        """Return how many rows a window takes.

        Args:
            lengths: of all documents, in tokens, 0 or more.
            begins: the first document of each of its runs.
            run: how many documents a run has; less at the end of `lengths`.

        Raises:
            IndexError, ValueError: there is no such document, or it has fewer than 0 tokens.
        """
        cdef int64_t full = 0, i, document, count, tokens
        cdef int64_t documents = lengths.shape[0]
        for i in range(begins.shape[0]):
            if not 0 <= begins[i] <= documents:
                raise IndexError(f"{documents} documents have no document {begins[i]}")
        with nogil:
            memset(self.pieces.data(), 0, self.pieces.size() * sizeof(int64_t))
            for i in range(begins.shape[0]):
                for document in range(begins[i], min(begins[i] + run, documents)):
                    tokens = count = lengths[document]
                    if tokens < 0:
                        with gil:
                            raise ValueError(f"document {document} has {tokens} tokens")
                    self.tokens += tokens
                    if tokens > self.most_tokens:
                        self.most_tokens, self.longest = tokens, document
                    if tokens == 0:
                        self.empty += 1
                        continue
                    if tokens > self.length:
                        self.long += 1
                        if self.policy == SPLIT:
                            full += tokens // self.length
                            count = tokens % self.length
                            if count == 0:
                                continue
                        elif self.policy == TRUNCATE:
                            self.left_out += tokens - self.length
                            count = self.length
                        else:
                            self.left_out += tokens
                            continue
                    self.pieces[count] += 1
            full += self.pack()
        return full

    cdef int64_t pack(self) noexcept nogil:
        """Return how many rows the counted pieces take."""
        cdef int64_t opened = 0, piece, left, rest, each, some, then
        for piece in range(self.length, 0, -1):
            left = self.pieces[piece]
            while left:
                rest = self.rests.least(piece)
                if rest < 0:
                    rest = self.length
                    each = rest // piece
                    some = max(left // each, <int64_t>1)  # rows that are opened
                    opened += some
                    self.rows[rest] = some
                    self.most[rest] = 0
                    self.rests.note(rest)
                else:
                    each = rest // piece
                each = min(each, left)  # pieces that one such row takes
                some = min(left // each, self.rows[rest])
                left -= some * each
                then = rest - each * piece
                if self.rows[then] == 0:
                    self.most[then] = 0
                    self.rests.note(then)
                self.rows[then] += some
                self.most[then] = max(self.most[then], self.most[rest] + each)
                self.most_pieces = max(self.most_pieces, self.most[then])
                self.rows[rest] -= some
                if self.rows[rest] == 0:
                    self.rests.forget(rest)
        for rest in range(self.length + 1):  # the next window begins without rows
            if self.rows[rest]:
                self.rows[rest] = 0
                self.rests.forget(rest)
        return opened


@cython.boundscheck(False)
@cython.wraparound(False)
def best_fit(const int64_t[::1] counts not None, int64_t length):
    """Place pieces in rows: the longest first, each where the least rests; of equal ones the first.

    Args:
        counts: tokens of each piece, in [1, length]; fewer than 2**31 pieces.
        length: tokens of a row.

    Returns:
        (firsts, order): row k has the pieces order[firsts[k]:firsts[k + 1]], in their own order. Both are
        int64, of shapes (rows + 1,) and (pieces,).
    """
    cdef int64_t pieces = counts.shape[0], i, piece, place, rest
    cdef int32_t row, opened = 0
    cdef _Rests rests = _Rests(length)
    cdef vector[int64_t] begins = vector[int64_t](length + 2, 0)
    cdef vector[int32_t] by_length = vector[int32_t](pieces, 0)
    cdef vector[int32_t] newest = vector[int32_t](length + 1, -1)  # row with a rest; `older` has others
    cdef vector[int32_t] older, row_of
    cdef cnp.ndarray[int64_t, ndim=1] firsts, order
    for i in range(pieces):
        if not 0 < counts[i] <= length:
            raise ValueError(f"piece {i} has {counts[i]} tokens: they go from 1 to {length}")
    row_of.assign(pieces, 0)
    with nogil:
        for i in range(pieces):
            begins[length - counts[i] + 1] += 1
        for i in range(length + 1):
            begins[i + 1] += begins[i]
        for i in range(pieces):
            place = begins[length - counts[i]]
            begins[length - counts[i]] += 1
            by_length[place] = <int32_t>i
        for i in range(pieces):
            piece = counts[by_length[i]]
            rest = rests.least(piece)
            if rest < 0:
                row, rest = opened, length
                opened += 1
                older.push_back(-1)
            else:
                row = newest[rest]
                newest[rest] = older[row]
                if newest[rest] < 0:
                    rests.forget(rest)
            row_of[by_length[i]] = row
            rest -= piece
            if newest[rest] < 0:
                rests.note(rest)
            older[row] = newest[rest]
            newest[rest] = row
    firsts = np.zeros(opened + 1, np.int64)
    order = np.empty(pieces, np.int64)
    with nogil:
        for i in range(pieces):
            firsts[row_of[i] + 1] += 1
        for i in range(opened):
            firsts[i + 1] += firsts[i]
        begins.assign(opened + 1, 0)
        for i in range(opened):
            begins[i] = firsts[i]
        for i in range(pieces):
            order[begins[row_of[i]]] = i
            begins[row_of[i]] += 1
    return firsts, order


@cython.final
cdef class PackedWindow:
    """The rows of a window: first those that one piece fills, then those of several pieces.

    Args:
        filled: the documents that fill rows.
        filled_ends: how many such rows there are up to each of them, and with it.
        documents: of the other pieces, one for each, row by row.
        firsts: row k of the others has documents[firsts[k]:firsts[k + 1]].
        order: of all rows; None: as they are.

    Attributes:
        size: how many numbers it holds.
    """

    cdef const int64_t[::1] filled, filled_ends, documents, firsts
    cdef Permutation order
    cdef readonly int64_t size

    def __init__(self, filled, filled_ends, documents, firsts, Permutation order):
        self.filled, self.filled_ends, self.documents = filled, filled_ends, documents
        self.firsts, self.order = firsts, order
        self.size = self.filled.shape[0] * 2 + self.documents.shape[0] + self.firsts.shape[0]

    def __len__(self):
        return self.filled_rows() + self.firsts.shape[0] - 1

    cdef int64_t filled_rows(self):
        return self.filled_ends[self.filled.shape[0] - 1] if self.filled.shape[0] else 0


@cython.boundscheck(False)
@cython.wraparound(False)
def pieces_of(list windows not None, const int64_t[::1] window_of not None,
              const int64_t[::1] places not None, lengths_t[::1] lengths, int64_t length, int policy):
    """Return the pieces of rows of best fit.

    Args:
        windows: a PackedWindow each.
        window_of: which of them has each row.
        places: of each row in its window.
        lengths: of all documents, in tokens.
        length: of a row.
        policy: see RowCounter.

    Returns:
        (documents, begins, counts, firsts): see `reader.tokens.packing.Pieces`.

    Raises:
        IndexError: a window has no such row, or another document than there is.
    """
    cdef int64_t rows = places.shape[0], i, place, fills, piece, document, count, low, high, middle
    cdef vector[int64_t] documents, begins, counts
    cdef PackedWindow window
    cdef cnp.ndarray[int64_t, ndim=1] firsts = np.zeros(rows + 1, np.int64)
    if window_of.shape[0] != rows:
        raise IndexError("each row has a window")
    for i in range(rows):
        window = windows[window_of[i]]
        place, fills = places[i], window.filled_rows()
        if not 0 <= place < fills + window.firsts.shape[0] - 1:
            raise IndexError(f"a window of {len(window)} rows has no row {place}")
        if window.order is not None:
            place = window.order[place]
        if place < fills:  # the first document with an end beyond it
            low, high = 0, window.filled.shape[0] - 1
            while low < high:
                middle = (low + high) // 2
                if window.filled_ends[middle] > place:
                    high = middle
                else:
                    low = middle + 1
            documents.push_back(window.filled[low])
            begins.push_back((place - (window.filled_ends[low - 1] if low else 0)) * length)
            counts.push_back(length)
        else:
            place -= fills
            for piece in range(window.firsts[place], window.firsts[place + 1]):
                document = window.documents[piece]
                if not 0 <= document < lengths.shape[0]:
                    raise IndexError(f"{lengths.shape[0]} documents have no document {document}")
                count = lengths[document]
                documents.push_back(document)
                begins.push_back(count // length * length if policy == SPLIT else 0)
                counts.push_back(count % length if policy == SPLIT else min(count, length))
        firsts[i + 1] = <int64_t>documents.size()
    return taken(documents), taken(begins), taken(counts), firsts


cdef object taken(vector[int64_t]& numbers):
    """Return a new array of numbers."""
    cdef cnp.npy_intp count = <cnp.npy_intp>numbers.size()
    cdef cnp.ndarray found = cnp.PyArray_EMPTY(1, &count, cnp.NPY_INT64, 0)
    if count:
        memcpy(cnp.PyArray_DATA(found), numbers.data(), count * sizeof(int64_t))
    return found


@cython.boundscheck(False)
@cython.wraparound(False)
def lay_out(const int64_t[::1] firsts not None, const int64_t[::1] counts not None, int64_t length,
            int32_t[:, ::1] positions, int32_t[:, ::1] segments, int32_t[:, ::1] ends,
            int32_t[::1] longest):
    """Write what rows of packed pieces are beside their tokens.

    Args:
        firsts: row k has the pieces firsts[k] to firsts[k + 1]; *shape* (rows + 1,).
        counts: tokens of each piece; those of a row sum to `length` at most.
        length: tokens of a row.
        positions: where to write the place of each token in its piece, 0 behind the last one, *shape*
            (rows, length); None: nowhere.
        segments: likewise for the number of the piece in its row, -1 behind the last one.
        ends: likewise for where pieces begin, and then `length`, *shape* (rows, n): what rests behind the
            last piece is a piece, too. n is at least the most pieces of a row and 2.
        longest: likewise for the tokens of the longest piece of each row, *shape* (rows,).

    Returns:
        (places, tokens): where each piece begins in the flat array of all rows, and how many tokens all
        pieces have.

    Raises:
        ValueError: arrays of other shapes, or pieces that do not fit.
    """
    cdef int64_t rows = firsts.shape[0] - 1, row, piece, place, i, most, tokens = 0
    cdef int32_t number
    cdef cnp.ndarray[int64_t, ndim=1] places = np.empty(counts.shape[0], np.int64)
    for row in range(rows):
        place = 0
        if not 0 <= firsts[row] <= firsts[row + 1] <= counts.shape[0]:
            raise ValueError(f"row {row} has no pieces {firsts[row]} to {firsts[row + 1]}")
        for piece in range(firsts[row], firsts[row + 1]):
            if counts[piece] < 1 or counts[piece] > length - place:
                raise ValueError(f"piece {piece} of {counts[piece]} tokens does not fit its row")
            places[piece] = row * length + place
            place += counts[piece]
        tokens += place
        if ends is not None and firsts[row + 1] - firsts[row] + 2 > ends.shape[1]:
            raise ValueError(f"row {row} has more pieces than {ends.shape[1]} - 2")
    if ((positions is not None and (positions.shape[0] != rows or positions.shape[1] != length))
            or (segments is not None and (segments.shape[0] != rows or segments.shape[1] != length))
            or (ends is not None and ends.shape[0] != rows)
            or (longest is not None and longest.shape[0] != rows)):
        raise ValueError(f"arrays to write to must have {rows} rows of {length}")
    with nogil:
        for row in range(rows):
            place, number, most = 0, 0, 0
            for piece in range(firsts[row], firsts[row + 1]):
                if positions is not None:
                    for i in range(counts[piece]):
                        positions[row, place + i] = <int32_t>i
                if segments is not None:
                    for i in range(counts[piece]):
                        segments[row, place + i] = number
                if ends is not None:
                    ends[row, number] = <int32_t>place
                number += 1
                place += counts[piece]
                most = max(most, counts[piece])
            most = max(most, length - place)
            if positions is not None:
                for i in range(place, length):
                    positions[row, i] = 0
            if segments is not None:
                for i in range(place, length):
                    segments[row, i] = -1
            if ends is not None:
                ends[row, number] = <int32_t>place  # the rest's begin, or the end
                for i in range(number + 1, ends.shape[1]):
                    ends[row, i] = <int32_t>length
            if longest is not None:
                longest[row] = <int32_t>most
    return places, tokens


@cython.boundscheck(False)
@cython.wraparound(False)
def move_on(cnp.ndarray values not None, cnp.ndarray moved not None, const int64_t[::1] places not None,
            const int64_t[::1] counts not None):
    """Write to each place of a piece what follows there; the last place of a piece is left as it is.

    Args:
        values: any plain numbers, C-contiguous.
        moved: written to; of the same type and size.
        places: where each piece begins, in the flat array.
        counts: places of each piece.
    """
    cdef int64_t i, nbytes = values.dtype.itemsize, size = values.size
    cdef const char* source = <const char*>cnp.PyArray_DATA(values)
    cdef char* target = <char*>cnp.PyArray_DATA(moved)
    if (values.dtype != moved.dtype or moved.size != size or values.dtype.hasobject
            or not values.flags.c_contiguous or not moved.flags.c_contiguous
            or counts.shape[0] != places.shape[0]):
        raise ValueError("arrays of one type and size are moved")
    for i in range(places.shape[0]):
        if places[i] < 0 or counts[i] < 1 or counts[i] > size - places[i]:
            raise ValueError(f"piece {i} does not lie within the values")
    with nogil:
        for i in range(places.shape[0]):
            memcpy(target + places[i] * nbytes, source + (places[i] + 1) * nbytes, (counts[i] - 1) * nbytes)
