"""WakeWords: the words that a worker of several loaders sleeps on, and for which loader it works.

Imports the channels. The page of words is shared by the trainer, which wakes, and its workers, each
of which sleeps on its own word and on the task rings of all its channels.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport strerror
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from reader._core.memory.wait cimport (exchange_u32, rd_futex_wait_any, rd_futex_wake, rd_wait_word,
                                       load_u32, rd_fence, rd_word_of, store_u32)
from reader._core.wire.channel cimport WorkerChannel
from reader._core.wire.ring cimport rd_task_look, rd_task_rest, rd_task_watch

from reader.errors import ReaderError

cdef enum:
    STRIDE = 16  # words from one worker to the next: each has its own cache line
    AT = 1       # offset of the second word: the part whose code the worker runs, 0: none


cdef class WakeWords:
    """Two words for each worker, in a memory file: one wakes it, one names the part it works for.

    ``fd``: the file, of at least `nbytes(count)` bytes; it may be closed afterwards. ``count``: workers.
    """

    def __init__(self, int fd, uint32_t count):
        cdef void* base = mmap(NULL, WakeWords.nbytes(count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if base == MAP_FAILED:
            raise ReaderError(f"the words that wake shared workers cannot be mapped: "
                              f"{strerror(errno).decode()}")
        self.words = <uint32_t*>base
        self.count = count

    def __dealloc__(self):
        if self.words is not NULL:
            munmap(self.words, WakeWords.nbytes(self.count))

    @staticmethod
    def nbytes(uint32_t count):
        """Return how many bytes the words of ``count`` workers take."""
        return count * STRIDE * sizeof(uint32_t)

    cdef uint32_t* word(self, uint32_t worker) except NULL:
        if worker >= self.count:
            raise IndexError(worker)
        return &self.words[worker * STRIDE]

    def wake(self, uint32_t worker):
        """Wake a worker, or prevent its next sleep; in the trainer."""
        cdef uint32_t* word = self.word(worker)
        if not exchange_u32(word, 1):
            rd_futex_wake(word, 1)

    def take(self, uint32_t worker):
        """Whether the worker was woken since the last call; in the worker."""
        cdef uint32_t* word = self.word(worker)
        return word[0] != 0 and exchange_u32(word, 0) != 0

    def enter(self, uint32_t worker, uint32_t part):
        """Note that the worker runs code for a part of a loader from now on; 0: for none.

        Then the worker checks whether the arena of that part was stopped.
        """
        store_u32(self.word(worker) + AT, part)
        rd_fence()

    def at(self, uint32_t worker):
        """Return the part of a loader for which the worker runs code, or ran it when it died; 0: none.

        If a caller has stopped an arena and does not find its part here, no code runs for that part any
        more.
        """
        rd_fence()
        return load_u32(self.word(worker) + AT)

    def wait(self, uint32_t worker, list channels not None, bint is_idle=True):
        """Sleep until the worker is woken, or one of its channels has something to do.

        ``is_idle``: it has no task of these channels; False: their tasks are done elsewhere meanwhile. May
        return earlier. Blocks without the GIL; passes on exceptions of signal handlers.
        """
        cdef uint32_t i, count = <uint32_t>len(channels)
        cdef rd_wait_word* words = <rd_wait_word*>malloc((count + 1) * sizeof(rd_wait_word))
        cdef WorkerChannel channel
        cdef bint is_quiet = True
        cdef int rc = 0
        if words is NULL:
            raise MemoryError()
        try:
            words[0] = rd_word_of(self.word(worker), 0)
            for i in range(count):
                channel = channels[i]
                if is_idle:
                    rd_task_rest(channel.c)
                else:
                    rd_task_watch(channel.c)
                words[i + 1] = rd_word_of(&channel.c.task_waiting, 1)
            for i in range(count):
                channel = channels[i]
                is_quiet = is_quiet and rd_task_look(channel.arena.c, channel.c, channel.guest()) == 3
            if is_quiet:
                with nogil:
                    rc = rd_futex_wait_any(words, count + 1)
            for i in range(count):
                channel = channels[i]
                store_u32(&channel.c.task_waiting, 0)
            if rc == EINTR:
                PyErr_CheckSignals()
        finally:
            free(words)
