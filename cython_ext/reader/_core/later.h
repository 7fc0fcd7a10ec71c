/* Python objects that a thread lets go which must not wait for the GIL.  Paddle's executor, for one,
 * drops tensors in threads of its own and joins those threads with the GIL held.  May include
 * Python.h and wait.h; the list below belongs to the process.
 */
#ifndef READER_CORE_LATER_H
#define READER_CORE_LATER_H

#include <Python.h>

#include "wait.h"

typedef struct rd_late {
    PyObject *object;
    struct rd_late *next;
} rd_late;

static rd_late *rd_late_head;     /* atomic stack: any thread pushes, who has the GIL takes it whole */
static uint32_t rd_late_is_asked; /* atomic: a pending call will empty it */

/* Let go of all that waits.  With the GIL. */
static int rd_late_run(void *unused) {
    (void)unused;
    rd_store_seq_cst(&rd_late_is_asked, 0u);
    rd_late *late = rd_exchange(&rd_late_head, (rd_late *)NULL);
    while (late != NULL) {
        rd_late *next = late->next;
        Py_DECREF(late->object);
        free(late);
        late = next;
    }
    return 0;
}

/* Drop a reference: now with the GIL, and else when the main thread next runs Python. */
static inline void rd_drop_object(PyObject *object) {
    if (object == NULL || !Py_IsInitialized()) return;
    if (PyGILState_Check()) {
        Py_DECREF(object);
        return;
    }
    rd_late *late = (rd_late *)malloc(sizeof *late);
    if (late == NULL) return; /* a leak is better than a deadlock */
    late->object = object;
    late->next = rd_load_acquire(&rd_late_head);
    while (!__atomic_compare_exchange_n(&rd_late_head, &late->next, late, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
    }
    if (!rd_exchange(&rd_late_is_asked, 1u) && Py_AddPendingCall(rd_late_run, NULL))
        rd_store_seq_cst(&rd_late_is_asked, 0u); /* no room: the next one asks again */
}

#endif
