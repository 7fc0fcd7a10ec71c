/* Drop references in threads that must not wait for the GIL.  Paddle's executor, for example, drops
 * tensors in its own threads, and joins those threads with the GIL held.  May include Python.h and
 * wait.h; the list below belongs to the process.
 */
#ifndef READER_CORE_DEFERRED_DECREF_H
#define READER_CORE_DEFERRED_DECREF_H

#include <Python.h>

#include "reader/_core/memory/wait.h"

typedef struct rd_deferred {
    PyObject *object;
    struct rd_deferred *next;
} rd_deferred;

/* atomic stack: any thread pushes, a thread with the GIL takes it whole */
static rd_deferred *rd_deferred_head;
static uint32_t rd_deferred_is_asked; /* atomic: 1: a pending call will empty the stack */

/* Drop all references on the stack.  Needs the GIL. */
static int rd_run_deferred(void *unused) {
    (void)unused;
    rd_store_seq_cst(&rd_deferred_is_asked, 0u);
    rd_deferred *deferred = rd_exchange(&rd_deferred_head, (rd_deferred *)NULL);
    while (deferred != NULL) {
        rd_deferred *next = deferred->next;
        Py_DECREF(deferred->object);
        free(deferred);
        deferred = next;
    }
    return 0;
}

/* Drop a reference: now if this thread has the GIL, else when the main thread next runs Python. */
static inline void rd_drop_object(PyObject *object) {
    if (object == NULL || !Py_IsInitialized()) return;
    if (PyGILState_Check()) {
        Py_DECREF(object);
        return;
    }
    rd_deferred *deferred = (rd_deferred *)malloc(sizeof *deferred);
    if (deferred == NULL) return; /* a leak is better than a deadlock */
    deferred->object = object;
    deferred->next = rd_load_acquire(&rd_deferred_head);
    while (!__atomic_compare_exchange_n(&rd_deferred_head, &deferred->next, deferred, 0,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
    if (!rd_exchange(&rd_deferred_is_asked, 1u) && Py_AddPendingCall(rd_run_deferred, NULL))
        rd_store_seq_cst(&rd_deferred_is_asked, 0u); /* the table is full: the next drop asks again */
}

#endif
