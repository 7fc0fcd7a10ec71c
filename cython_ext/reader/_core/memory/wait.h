/* Words that processes and threads wait on: named-order atomics, futex, eventfd, pidfd.
 *
 * Everything here is safe without the GIL, after a fork and in a signal handler's thread.
 * It may include system headers only.  Nothing here owns state: callers own the words.
 */
#ifndef READER_CORE_WAIT_H
#define READER_CORE_WAIT_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Atomics.  The suffix names the memory order, as in C11. */
#define rd_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define rd_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define rd_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define rd_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define rd_store_seq_cst(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define rd_fetch_add(p, v) __atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define rd_fetch_sub(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_ACQ_REL)
#define rd_exchange(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define rd_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)

static inline int rd_cas_u64(uint64_t *word, uint64_t *expected, uint64_t desired) {
    return __atomic_compare_exchange_n(word, expected, desired, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

static inline int rd_cas_u8(uint8_t *word, uint8_t *expected, uint8_t desired) {
    return __atomic_compare_exchange_n(word, expected, desired, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

/* CLOCK_MONOTONIC in nanoseconds: the same clock in every process of the machine. */
static inline int64_t rd_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Wait while *word == value, until deadline_ns (monotonic; < 0: for ever).
 * Returns 0 when woken or when the word differed, or an errno: ETIMEDOUT, EINTR. */
static inline int rd_futex_wait(uint32_t *word, uint32_t value, int64_t deadline_ns) {
    struct timespec until, *limit = NULL;
    if (deadline_ns >= 0) {
        until.tv_sec = deadline_ns / 1000000000LL;
        until.tv_nsec = deadline_ns % 1000000000LL;
        limit = &until;
    }
    /* WAIT_BITSET takes an absolute monotonic time; not PRIVATE: the word may be shared. */
    if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, limit, NULL,
                FUTEX_BITSET_MATCH_ANY) == 0)
        return 0;
    return errno == EAGAIN ? 0 : errno;
}

static inline void rd_futex_wake(uint32_t *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

/* The kernel's struct futex_waitv: older headers lack it. */
typedef struct rd_wait_word {
    uint64_t value, word;
    uint32_t flags, reserved;
} rd_wait_word;

#define RD_MOST_WORDS 128 /* the most that the kernel waits on */

static inline rd_wait_word rd_word_of(uint32_t *word, uint32_t value) {
    rd_wait_word found = {value, (uint64_t)(uintptr_t)word, 2 /* FUTEX_32, shared */, 0};
    return found;
}

/* Wait until one of `count` words is woken or differs from its value. Kernels before 5.16 and sandboxes
 * refuse that: then wait for a millisecond on the first word. Returns 0, or EINTR. */
static inline int rd_futex_wait_any(const rd_wait_word *words, uint32_t count) {
    static int is_refused = 0; /* one per process; every thread that writes it writes 1 */
    if (count <= RD_MOST_WORDS && !rd_load_relaxed(&is_refused)) {
        if (syscall(449 /* SYS_futex_waitv */, words, count, 0, NULL, 0) >= 0) return 0;
        if (errno == EINTR || errno == EAGAIN) return errno == EINTR ? EINTR : 0;
        rd_store_relaxed(&is_refused, 1);
    }
    return rd_futex_wait((uint32_t *)(uintptr_t)words[0].word, (uint32_t)words[0].value,
                         rd_now_ns() + 1000000) == EINTR
               ? EINTR
               : 0;
}

/* A bell is an eventfd: ringing never blocks, listening clears it. */
static inline int rd_bell_open(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

static inline void rd_bell_ring(int fd) {
    uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof one);
    (void)ignored; /* EAGAIN: it already rings */
}

static inline void rd_bell_clear(int fd) {
    uint64_t count;
    ssize_t ignored = read(fd, &count, sizeof count);
    (void)ignored; /* EAGAIN: it did not ring */
}

/* Kill the process behind a pidfd. */
static inline void rd_kill(int pidfd) { syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0); }

/* Start a native thread that receives no signals and is called `name` (15 bytes at most). */
typedef void *(*rd_thread_body)(void *);

static inline int rd_thread_start(pthread_t *thread, rd_thread_body body, void *argument,
                                  const char *name) {
    sigset_t all, before;
    pthread_attr_t attributes;
    int rc;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(thread, &attributes, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (rc == 0) pthread_setname_np(*thread, name);
    return rc;
}

/* Only the watch thread of a worker takes the signal that asks for its stacks: in other threads it would
 * interrupt system calls. See reader/processes/python_stack.py. */
#define RD_STACK_SIGNAL (SIGRTMIN + 9)

/* The worker's watch over its trainer: ends this process at once when the trainer ends, whatever
 * this process is doing, even inside C code that holds the GIL. */
static inline void *rd_watch_trainer(void *argument) {
    struct pollfd p = {(int)(intptr_t)argument, POLLIN, 0};
    sigset_t asked;
    sigemptyset(&asked);
    sigaddset(&asked, RD_STACK_SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &asked, NULL);
    while (poll(&p, 1, -1) != 1) {
    }
    syscall(SYS_exit_group, 1);
    return NULL;
}

static inline int rd_start_trainer_watch(int trainer_pidfd) {
    pthread_t thread;
    int rc = rd_thread_start(&thread, rd_watch_trainer, (void *)(intptr_t)trainer_pidfd,
                             "reader-watch");
    if (rc == 0) pthread_detach(thread);
    return rc;
}

#endif
