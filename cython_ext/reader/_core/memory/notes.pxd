# Notes of batches after their delivery: what Cython uses of notes.h.
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "reader/_core/memory/notes.h" nogil:
    enum:
        RD_NOTES_KEPT
        RD_ISSUED
        RD_COPIED
        RD_HANDED
        RD_GIVEN_BACK

    ctypedef struct rd_note:
        uint64_t serial, what
        int64_t at_ns

    ctypedef struct rd_notes:
        uint64_t count

    rd_notes* rd_notes_new() noexcept
    void rd_notes_ref(rd_notes*) noexcept
    void rd_notes_unref(rd_notes*) noexcept
    void rd_notes_add(rd_notes*, uint64_t number, uint32_t place, uint32_t kind) noexcept
    int rd_notes_read(rd_notes*, uint64_t serial, rd_note*) noexcept
