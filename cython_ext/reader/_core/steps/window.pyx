"""Window: the tasks of an epoch that are sent and not delivered yet.

Imports the feeder, the types that are handed over and the indices of built-in samplers. It belongs to
one iterator, and to the thread that iterates. Batches of a built-in sampler become tasks here, without
code of Python; the schedule draws all others.
"""
import pickle
from bisect import bisect_left
from collections import Counter, deque

cimport cython
from libc.stdint cimport int64_t

from reader._core.collate.indices cimport IndexBatches, Indices
from reader._core.memory.wait cimport rd_now_ns
from reader._core.steps.handover cimport Task
from reader._core.steps.round_robin cimport RoundRobin
from reader._core.wire.channel cimport TASK_ENTER, TASK_EPOCH, TASK_INDICES, TASK_KEYS
from reader._core.wire.feeder cimport Feeder

from reader._core.interpreter.signals import is_interrupt
from reader._core.wire.channel import decode_task

MAX_LAG = 1 << 16  # tasks between the oldest and the newest, where they are delivered as they come


@cython.final
cdef class Window:
    """Keeps as many tasks in flight as `size` says.

    Args:
        feeder: sends them.
        size: most tasks sent and not delivered; may be lowered while in use.
        first: the number of the first task.
        in_order: False: tasks are delivered as they are answered.
        passed: numbers of tasks that were delivered in an earlier run: drawn, and not sent.
        on_pass: called with each of those when it is drawn.
        reword: called with what the source raises; returns what is raised for it after the last
            batch.
    """

    def __init__(self, feeder, int64_t size, int64_t first=0, bint in_order=True, passed=(), on_pass=None,
                 reword=None):
        self.size = size
        self.leaving = -1
        self.in_order = in_order
        self.passed = sorted(passed)
        self.on_pass = on_pass
        self.reword = reword
        self.dispatched = first
        self.feeder = feeder
        self.rings = feeder if type(feeder) is Feeder else None
        self.times = getattr(feeder, "times", None)
        self.tasks = {}
        self.held = deque()
        self.starts = deque()

    @property
    def answered(self):
        """How many tasks have an answer that was accepted."""
        return self.feeder.accepted + self.passes

    @property
    def passes(self):
        """How many drawn tasks were delivered in an earlier run."""
        return bisect_left(self.passed, self.dispatched) if self.passed else 0

    @property
    def is_empty(self):
        """Whether nothing is in flight."""
        return self.in_flight == 0

    @property
    def is_over(self):
        """Whether the source has no more and all it had is delivered."""
        return self.is_drained and self.dispatched == self.answered

    @property
    def has_unsent(self):
        """Whether something is still to be sent: no worker had room, or Ctrl-C came."""
        return bool(self.held or self.starts)

    @property
    def has_error(self):
        """Whether the source raised something that the user has not got yet."""
        return self.error is not None

    @property
    def in_flight(self):
        """How many tasks are sent and not accepted."""
        return self.dispatched - len(self.held) - self.answered

    @property
    def lags(self):
        """Whether the oldest task is MAX_LAG tasks behind the newest."""
        return self.dispatched - next(iter(self.tasks), self.dispatched) >= MAX_LAG

    def loads(self):
        """Return how many tasks each worker has, without the one that is being delivered."""
        return Counter([(<Task>task).worker for seq, task in self.tasks.items()
                        if seq != self.leaving])

    def task(self, seq):
        """Return the task of a batch that is not delivered."""
        return self.tasks[seq]

    def task_keys(self, seq):
        """Return the dataset keys of a batch; [] if it has none, or was delivered."""
        cdef Task task = self.tasks.get(seq)
        if task is None:
            return []
        if isinstance(task.payload, bytes):
            return decode_task(task.kind, task.payload)
        return task.payload if task.kind == TASK_KEYS else [task.payload]

    def accept(self, seq):
        """Accept an answer and return its task; until then the feeder returns it again."""
        task = self.tasks[seq]
        self.feeder.accept()
        self.tasks.pop(seq, None)
        return task

    def keep_error(self, error):
        """Have the epoch end with an exception."""
        self.error = error

    def forget_error(self):
        """Drop what the source raised."""
        self.error = None

    # -- what is sent apart from the order -------------------------------------------------------

    def add_start(self, worker, start):
        """Have an EpochStart sent to a worker, before anything else."""
        self.starts.append((worker, TASK_EPOCH, pickle.dumps(start, 5)))
        if start.sends_state:
            self.starts.append((worker, TASK_ENTER, b""))

    def hold(self, tasks):
        """Have tasks sent again, in the order of their numbers."""
        self.held = deque(sorted([*self.held, *tasks], key=number_of))

    def hold_all(self):
        """Have all that was not answered sent again."""
        first = self.answered if self.in_order else 0
        self.held = deque(sorted([task for seq, task in self.tasks.items() if seq >= first],
                                 key=number_of))

    def drop_held(self, seqs):
        """Drop held tasks: something else stands in their places."""
        gone = set(seqs)
        self.held = deque([task for task in self.held if task.seq not in gone])

    def add(self, Task task not None):
        """Note a task as dispatched, without sending it; returns its number."""
        seq = task.seq = self.dispatched if task.seq < 0 else task.seq
        self.tasks[seq] = task
        self.dispatched = seq + 1
        return seq

    def held_by(self, worker):
        """Return the tasks of a worker for which it had no room yet."""
        return [task.seq for task in self.held if task.worker == worker]

    def send(self, Task task not None):
        """Send a task ahead of all that are held, however full the window; returns its number.

        The caller holds Ctrl-C back.
        """
        self.add(task)
        if not self.send_to(task):
            self.held.appendleft(task)
        return task.seq

    def flush(self, size=None):
        """Send what is held until `size` are in flight (None: however many), and the next one that is
        to be delivered in any case: those after it may fill a window that was made smaller.

        Returns False if no worker has room for the next one.
        """
        cdef Task task
        while self.held:
            task = self.held[0]
            if size is not None and self.in_flight >= size and task.seq != self.answered:
                break
            sends = self.feeder.sends
            try:
                if not self.send_to(task):
                    return False
                self.held.popleft()
            except BaseException:  # Ctrl-C after it was sent: do not send it again
                if self.feeder.sends != sends and self.held and self.held[0] is task:
                    self.held.popleft()
                raise
        return True

    def send_starts(self):
        """Send each EpochStart that is due. Returns whether tasks may follow them."""
        waiting = deque()
        while self.starts:
            worker, kind, payload = self.starts[0]
            if not self.feeder.dispatch(0, kind, payload, worker):
                if worker not in self.feeder.ended_workers():
                    self.starts.extendleft(reversed(waiting))
                    return False
                # it has ended, and gets no task before it is replaced
                waiting.append((worker, kind, payload))
            self.starts.popleft()
        self.starts = waiting
        return True

    # -- filling ---------------------------------------------------------------------------------

    def draw_from(self, IndexBatches batches not None, int64_t count, RoundRobin turns,
                  list odd not None):
        """From the next batch on, draw those of a built-in sampler without the source.

        A batch with an index outside of the dataset's ``count`` items is put into ``odd``, and the
        source draws it. ``turns``: whose turn it is to take each task; None: the least busy worker
        takes it.
        """
        self.batches = batches
        self.count = count
        self.turns = turns
        self.odd = odd

    cpdef fill(self, source, int64_t taken=0):
        """Send tasks until the window is full, or no worker has room.

        `source`: the Schedule that draws them. `taken`: how many batches were taken from the queue and do
        not count as delivered yet.
        What the user's sampler raises is kept until the batches before it are delivered; what the
        handler of a signal raises there, as for Ctrl-C, is raised at once.
        """
        cdef Task drawn
        cdef bint has_room, is_drawn_here
        cdef int64_t seq, limit, begun_ns, size = self.size + taken
        if self.is_owing:
            self.tell_drawn(source)
        if self.starts and not self.send_starts():
            return
        if self.held and not self.flush(size):
            return
        if self.is_drained:
            return
        limit = size + <int64_t>(self.feeder.accepted if self.rings is None else self.rings.accepted)
        if self.passed:
            limit += self.passes
        while self.dispatched < limit and (self.in_order or not self.lags):
            seq = self.dispatched
            drawn = None
            try:
                drawn = self.draw_built_in()
                is_drawn_here = drawn is not None
                if drawn is None:
                    begun_ns = rd_now_ns()
                    drawn = source.draw()
                    if self.times is not None:
                        self.times.drawn_ns += rd_now_ns() - begun_ns
                if drawn is None:
                    self.is_drained = True
                    return
                if self.passed and seq in self.passed:
                    self.pass_by(drawn, source)
                    limit += 1
                    continue
                drawn.seq = seq
                has_room = self.send_to(drawn)
                if not has_room:
                    self.held.append(drawn)
                self.tasks[seq] = drawn
                self.dispatched = seq + 1
                if not is_drawn_here:
                    self.tell_drawn(source)
                if not has_room:
                    return
            except BaseException as error:
                if is_interrupt(error):
                    self.recover(seq, drawn, source)
                    raise
                self.error = error  # the sampler's: raised after the batches before it
                self.is_drained = True
                if self.reword is not None:
                    self.error = self.reword(error)
                return

    cdef Task draw_built_in(self):
        """Return the task of the next batch of a built-in sampler; None: the source draws it."""
        cdef Indices found
        cdef Task task
        if self.batches is None or self.odd or self.passed or not self.in_order:
            return None
        found = self.batches.draw()
        if found is None:
            return None
        if found.outside(self.count) is not NULL:
            self.odd.append(found)
            return None
        task = Task.__new__(Task)
        task.kind = TASK_INDICES
        task.payload = found.payload
        task.worker = -1
        if self.turns is not None:
            task.worker = self.turns.next_worker()
            self.turns.pass_on(task.worker)
        return task

    cdef bint send_to(self, Task task) except -1:
        """Send a task to its worker. Returns whether that has room."""
        if self.rings is not None:
            return self.rings.dispatch(task.seq, task.kind, task.payload, task.worker)
        return self.feeder.dispatch(task.seq, task.kind, task.payload, task.worker)

    cdef int tell_drawn(self, source) except -1:
        """Tell the source that its task is in flight. After an interrupt it is told again, before it
        draws the next one."""
        self.is_owing = True
        source.drawn()
        self.is_owing = False
        return 0

    cdef int pass_by(self, Task task, source) except -1:
        """Count a task that was delivered in an earlier run."""
        if task.seq < 0:
            task.seq = self.dispatched
        if self.on_pass is not None:
            self.on_pass(task)
        self.dispatched = task.seq + 1
        self.tell_drawn(source)
        return 0

    cdef int recover(self, int64_t seq, Task drawn, source) except -1:
        """A signal came while task `seq` was drawn and sent: note how far it had come."""
        if self.dispatched > seq:
            self.tell_drawn(source)
        elif drawn is not None and seq in self.passed:
            self.pass_by(drawn, source)
        elif drawn is not None:
            is_held = bool(self.held) and self.held[len(self.held) - 1] is drawn
            if self.feeder.sent <= seq and not is_held:
                self.held.append(drawn)
            self.add(drawn)
            self.tell_drawn(source)
        return 0


def number_of(Task task not None):
    """Return a task's number."""
    return task.seq
