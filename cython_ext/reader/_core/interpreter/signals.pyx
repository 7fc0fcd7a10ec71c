"""Hold signals back during steps that must be completed, and recognise the exceptions they raise.

Imports nothing of the project. Python runs signal handlers in its main thread, between two instructions of
Python code; compiled code has none. Replaces the handlers while a `with` block runs.
"""
import functools
import signal
import sys
import threading

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.signal cimport SIGINT

cdef extern from *:
    """
    #include <pthread.h>
    #include <signal.h>
    #include <string.h>

    static pthread_t rd_main_thread;
    static volatile sig_atomic_t rd_arrived[NSIG];
    static struct sigaction rd_before[NSIG];

    static void rd_note_signal(int number) { rd_arrived[number] = 1; }

    static void rd_note_main(void) { rd_main_thread = pthread_self(); }

    static int rd_is_main(void) { return pthread_equal(rd_main_thread, pthread_self()); }

    static void rd_hold_signal(int number) {
        struct sigaction note;
        memset(&note, 0, sizeof note);
        sigemptyset(&note.sa_mask);
        note.sa_handler = rd_note_signal;
        sigaction(number, &note, &rd_before[number]);
    }

    // a handler that was set meanwhile stays
    static void rd_let_signal(int number) {
        struct sigaction now;
        if (sigaction(number, NULL, &now) == 0 && now.sa_handler == rd_note_signal)
            sigaction(number, &rd_before[number], NULL);
    }

    // the next signal that was noted, from `number` on; 0: none
    static int rd_take_noted(int number) {
        for (; number < NSIG; number++)
            if (rd_arrived[number]) {
                rd_arrived[number] = 0;
                return number;
            }
        return 0;
    }

    static void rd_do_nothing(int number) { (void)number; }

    // A program that this process starts gets the default again in place of a handler that does nothing; an
    // ignored signal would stay ignored there. No Python code runs, and system calls go on.
    static int rd_be_deaf(int number) {
        struct sigaction nothing;
        memset(&nothing, 0, sizeof nothing);
        sigemptyset(&nothing.sa_mask);
        nothing.sa_handler = rd_do_nothing;
        nothing.sa_flags = SA_RESTART;
        return sigaction(number, &nothing, NULL);
    }

    static __thread int rd_is_unwinding;
    static destructor rd_own_finalize;

    // Whether an exception is unwinding, other than one that ends a generator or the program.
    static int rd_error_leaves(void) {
        PyObject *kind = PyErr_Occurred();
        return kind && !PyErr_GivenExceptionMatches(kind, PyExc_GeneratorExit) &&
               !PyErr_GivenExceptionMatches(kind, PyExc_SystemExit) &&
               !PyErr_GivenExceptionMatches(kind, PyExc_StopIteration);
    }

    // Python hides the exception from a finalizer: look before it is called.
    static void rd_finalize(PyObject *object) {
        int before = rd_is_unwinding;
        rd_is_unwinding = before || rd_error_leaves();
        rd_own_finalize(object);
        rd_is_unwinding = before;
    }

    // Python's classes take the function from `wrapper`, the type's `__del__`; C's take it from the type.
    static void rd_watch_finalizer(PyObject *type, PyObject *wrapper) {
        rd_own_finalize = ((PyTypeObject *)type)->tp_finalize;
        ((PyTypeObject *)type)->tp_finalize = rd_finalize;
        ((PyWrapperDescrObject *)wrapper)->d_wrapped = (void *)rd_finalize;
    }

    static int rd_unwinds(void) { return rd_is_unwinding; }
    """
    ctypedef unsigned long pthread_t
    pthread_t rd_main_thread
    void rd_note_main() noexcept
    bint rd_is_main() noexcept
    void rd_hold_signal(int) noexcept
    void rd_note_signal(int) noexcept
    void rd_let_signal(int) noexcept
    int rd_take_noted(int) noexcept
    int rd_be_deaf(int) noexcept
    void rd_watch_finalizer(object, object) noexcept
    bint rd_unwinds() noexcept
    int pthread_atfork(void (*)() noexcept, void (*)() noexcept, void (*)() noexcept) noexcept

cdef extern from "Python.h":
    bint PyIter_Check(object)
    PyObject* PyIter_Next(object) except? NULL
    int PyErr_SetInterruptEx(int number) noexcept
    int PyOS_InterruptOccurred() noexcept
    int Py_AddPendingCall(int (*function)(void*) noexcept, void* argument) noexcept
    void PyErr_SetObject(object, object) noexcept
    void PyErr_WriteUnraisable(object) noexcept

# signal.getsignal makes an enum of each result, which takes ten times as long
cdef object get_handler = signal._signal.getsignal
cdef object is_finalizing = sys.is_finalizing
cdef list numbers = [int(number) for number in signal.Signals]
cdef int depth = 0  # how many blocks of the main thread hold signals back
cdef list held = []  # the signals that they hold

rd_main_thread = <pthread_t>threading.main_thread().ident
pthread_atfork(NULL, NULL, rd_note_main)  # the thread that forks is the main one in the child


cdef list handled():
    """Return the signals that code of Python handles."""
    cdef list found = []
    cdef object handler
    for number in numbers:
        handler = get_handler(number)
        if type(handler) is not int and callable(handler):  # most are the number of a default
            found.append(number)
    return found


cdef void hold():
    """Note signals from now on, and hold them back. Call it in the main thread."""
    global depth, held
    if depth == 0:
        held = handled()
        for number in held:
            rd_hold_signal(number)
    depth += 1


cdef void let(bint is_dropping=False):
    """Put the handlers back; signals that were noted are handled with the next instruction.

    `is_dropping`: other objects may be dropped before that.
    """
    global depth
    depth -= 1
    if depth:
        return
    for number in held:
        rd_let_signal(number)
    if not is_dropping or Py_AddPendingCall(handle_noted, NULL) != 0:
        handle_noted(NULL)


cdef int handle_noted(void* _) noexcept:
    cdef int number = 1
    if depth == 0:  # else the end of that block does it
        while (number := rd_take_noted(number)) != 0:
            PyErr_SetInterruptEx(number)
    return 0


def is_interrupt(error):
    """Whether a signal handler raised `error`, whatever code it interrupted."""
    if isinstance(error, KeyboardInterrupt):
        return True
    codes = handler_codes()
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


cdef bint came_in_callee(error):
    """Whether a signal's `error` came in Python code called by the frame that catches it."""
    here = error.__traceback__
    inner = None if here is None else here.tb_next
    return inner is not None and inner.tb_frame.f_code not in handler_codes()


def draw_into(list found not None, iterator, Py_ssize_t count=1, list torn=None):
    """Draw from an iterator until a list has ``count`` items, or the iterator ends.

    No signal is handled between drawing an item and keeping it. If a handler raised in the iterator's
    own code, which may have ended the iterator, True is appended to ``torn``, before any other signal
    is handled.
    """
    cdef PyObject* item
    if not PyIter_Check(iterator):
        raise TypeError(f"'{type(iterator).__name__}' object is not an iterator")
    try:
        while len(found) < count:
            item = PyIter_Next(iterator)
            if item is NULL:
                break
            kept = <object>item
            Py_DECREF(kept)  # two have it: `item` owned one
            found.append(kept)
    except BaseException as error:
        if torn is not None and is_interrupt(error) and came_in_callee(error):
            torn.append(True)
        raise


cdef set handler_codes():
    found = {code_of(get_handler(number)) for number in handled()}
    found.discard(None)
    return found


cdef object code_of(handler):
    """Return the code that a handler runs first; None if it is not Python code."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = getattr(type(handler), "__call__", None)
    return getattr(getattr(handler, "__func__", handler), "__code__", None)


@cython.final
cdef class interrupt_after:
    """Hold signals back until the block is done: Ctrl-C, and signals that the program handles.

    They are handled after the block, as if they came then. Blocks may be nested. Does nothing outside the
    main thread, where no handler runs.
    """

    cdef bint holds

    def __enter__(self):
        if rd_is_main():
            hold()
            try:
                PyErr_CheckSignals()  # what came before
            except BaseException:
                let()
                raise
            self.holds = True
        return self

    def __exit__(self, *_):
        if self.holds:
            self.holds = False
            let()


cdef class SafeExit:
    """Base class of contexts that are closed whatever signal comes: `__exit__` calls `close`."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        cdef bint holds = rd_is_main()
        came = None
        if holds:
            hold()
            try:
                PyErr_CheckSignals()  # what came before
            except BaseException as error:
                came = error
        try:
            self.close()
        finally:
            if holds:
                let()
        if came is not None:
            raise came

    def close(self):
        """Close the context."""


cdef class Finalized:
    """Base class of objects that must be closed: `finalize` is called when the object is dropped.

    No signal interrupts it; signals are handled after it. `finalize` may be called for an object that was
    never initialized, in any thread, and not at the exit of the interpreter. It is not called if
    ``is_ended`` is set: then nothing is left to do.
    """

    def __del__(self):
        cdef bint holds = rd_is_main()
        if self.is_ended or is_finalizing():
            return
        if holds:
            hold()
            if PyOS_InterruptOccurred():  # Ctrl-C that came before
                rd_note_signal(SIGINT)
            while True:
                try:
                    PyErr_CheckSignals()  # another signal that came before
                    break
                except BaseException as error:
                    # print and drop it, as Python does with exceptions raised while it frees objects
                    PyErr_SetObject(type(error), error)
                    PyErr_WriteUnraisable(self)
        try:
            self.finalize()
        finally:
            if holds:
                let(True)

    def finalize(self):
        """Close it."""


rd_watch_finalizer(Finalized, Finalized.__del__)  # before a class is derived from it


def is_unwinding():
    """Whether this runs in the `finalize` of an object that an exception drops, say as it leaves a loop.

    An exception that ends a generator, or the program, does not count; nor does one whose traceback
    keeps the object.
    """
    return rd_unwinds()


def ignore_interrupts():
    """Make Ctrl-C do nothing in this process, but its usual work in programs that this one starts.

    Python sees it as ignored (`signal.SIG_IGN`). It is unblocked. Call it in the main thread.
    """
    signal.signal(SIGINT, signal.SIG_IGN)
    rd_be_deaf(SIGINT)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGINT})
