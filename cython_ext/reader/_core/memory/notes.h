/* Notes of batches after their delivery: copies to devices, the hand-over, the end of the last view. Kept
 * only while a profile runs. Any thread adds a note, without a lock and without the GIL. The oldest are
 * lost if they are not read in time. May include wait.h alone. */
#ifndef READER_CORE_NOTES_H
#define READER_CORE_NOTES_H

#include <stdlib.h>

#include "wait.h"

#define RD_NOTES_KEPT 2048u

enum rd_note_kind { RD_ISSUED = 0, RD_COPIED = 1, RD_HANDED = 2, RD_GIVEN_BACK = 3 };

/* One note; each word is read and written by itself. */
typedef struct rd_note {
    uint64_t serial; /* one more than its number among all notes; 0: it is being written */
    uint64_t what; /* the batch's number in the log of times, the place (8 bits), the kind (8) */
    int64_t at_ns;
} rd_note;

typedef struct rd_notes {
    int64_t refs;   /* atomic: the log's, and those of leases */
    uint64_t count; /* atomic: notes begun so far */
    rd_note kept[RD_NOTES_KEPT];
} rd_notes;

static inline rd_notes *rd_notes_new(void) {
    rd_notes *notes = (rd_notes *)calloc(1, sizeof *notes);
    if (notes != NULL) notes->refs = 1;
    return notes;
}

static inline void rd_notes_ref(rd_notes *notes) { rd_fetch_add(&notes->refs, (int64_t)1); }

static inline void rd_notes_unref(rd_notes *notes) {
    if (rd_fetch_sub(&notes->refs, (int64_t)1) == 1) free(notes);
}

static inline void rd_notes_add(rd_notes *notes, uint64_t number, uint32_t place, uint32_t kind) {
    const uint64_t serial = rd_fetch_add(&notes->count, (uint64_t)1);
    rd_note *note = &notes->kept[serial % RD_NOTES_KEPT];
    rd_store_relaxed(&note->serial, (uint64_t)0);
    rd_fence(); /* pairs with the one in rd_notes_read */
    rd_store_relaxed(&note->what, number << 16 | (uint64_t)(place & 255u) << 8 | kind);
    rd_store_relaxed(&note->at_ns, rd_now_ns());
    rd_store_release(&note->serial, serial + 1);
}

/* Copy the note of a number. Returns 1; 0: it is still being written; -1: it is lost. */
static inline int rd_notes_read(rd_notes *notes, uint64_t serial, rd_note *copy) {
    rd_note *note = &notes->kept[serial % RD_NOTES_KEPT];
    const uint64_t before = rd_load_acquire(&note->serial);
    copy->what = rd_load_relaxed(&note->what);
    copy->at_ns = rd_load_relaxed(&note->at_ns);
    rd_fence(); /* pairs with the one in rd_notes_add */
    copy->serial = rd_load_relaxed(&note->serial);
    if (before == serial + 1 && copy->serial == before) return 1;
    return rd_load_acquire(&notes->count) - serial > RD_NOTES_KEPT ? -1 : 0;
}

#endif
