"""The tasks of an epoch: each once, in one table, with its state; one function makes every transition.

Imports the C of signals and whose turn it is. A TaskTable belongs to one epoch: the thread that iterates
changes it; `count` may be called by any. It knows no process, thread, clock or file. No signal is handled
within a method here that calls no code of the user's, so that each transition happens whole or not at all.
The states, and what leads from one to another, are drawn in docs/architecture.md.
"""
cimport cython
from libc.stdint cimport int64_t

from reader._core.epoch.round_robin cimport RoundRobin
from reader._core.wire.channel cimport TASK_INDICES

from collections import Counter

from reader._core.interpreter.signals import draw_into
from reader._core.wire.channel import TaskKind, decode_task
from reader.errors import InternalError, ReaderError

cdef enum:
    MAX_LAG = 1 << 16  # tasks between the oldest and the newest, where they are delivered as they come
    LOT = 64           # tasks that are counted at one go

# for each state, those that may follow it, as bits
cdef int[STATES] FOLLOWS
FOLLOWS[<int>GONE] = 1 << <int>DRAWN | 1 << <int>HELD
FOLLOWS[<int>DRAWN] = 1 << <int>HELD | 1 << <int>EARLY | 1 << <int>GONE
FOLLOWS[<int>HELD] = 1 << <int>SENT | 1 << <int>GONE
FOLLOWS[<int>SENT] = 1 << <int>ARRIVED | 1 << <int>HELD | 1 << <int>GONE
FOLLOWS[<int>ARRIVED] = (1 << <int>HELD | 1 << <int>ASIDE | 1 << <int>LANDED | 1 << <int>HANDED | 1 << <int>GONE)
FOLLOWS[<int>ASIDE] = 1 << <int>HELD | 1 << <int>LANDED | 1 << <int>HANDED | 1 << <int>GONE
FOLLOWS[<int>LANDED] = 1 << <int>HANDED | 1 << <int>GONE
FOLLOWS[<int>HANDED] = 1 << <int>EARLY | 1 << <int>GONE
FOLLOWS[<int>EARLY] = 1 << <int>GONE


@cython.final
cdef class Task:
    """A task: what a worker is to make a batch of, and what came of it.

    Attributes:
        kind: of the channel: what `payload` is.
        payload: the dataset keys as they are sent; in state DRAWN as the sampler yielded them.
        worker: the one that must take it; -1: any.
        mark: what a saved state needs, beside the number of the batch, to open the order after it;
            see `reader.orders.order.Order`.
        number: of the task in its epoch, which its answer has; of a map-style dataset the number of the batch.
        first_number: the number that it had first: its place in the order of delivery.
        step: the number of the user's step that it was handed over in, or before, from 1; 0: it was not.
        state: where it is.
        value: in state ASIDE the answer, as a copy outside of the arena; LANDED: the user's batch.
        snapshot: once it is answered, what its worker sent with it, or None: states, samples that failed, the end
            of its shard.
        drawn: how many samples of an iterable dataset were drawn for it; None: a full batch's.
        is_error: an exception was delivered in the batch's place.
        is_end: this worker delivers no more batches: its shard is exhausted, or, with `is_error`, it died, and
            the exception was delivered.
        part: its number among the batches of its step, from 0.
        parts: how many batches its step has; 0: this one alone.
        log_number: one more than the place of its batch in the log of times; 0: no profile runs.
        tries: how often there was no memory for its batch.
        deaths: the workers that died at it.
        hung: what is known of its worker, if that was killed because it hung; see Watchdog.
        start_failure: the Failure of a worker that could not start; it is raised in the batch's place.
    """

    def __cinit__(self):
        self.worker = -1
        self.number = self.first_number = -1
        self.deaths = ()

    def __init__(self, int kind, payload, int worker=-1, mark=None, int part=0, int parts=0):
        self.kind = kind
        self.payload = payload
        self.worker = worker
        self.mark = mark
        self.part = part
        self.parts = parts

    def __repr__(self):
        return f"Task(number={self.number}, {TaskState(self.state).name}, worker={self.worker})"

    @property
    def keys(self):
        """The dataset keys; [] of an iterable dataset."""
        if isinstance(self.payload, bytes):
            return decode_task(self.kind, self.payload)
        return self.payload if self.kind == TaskKind.TASK_KEYS else [self.payload]

    @property
    def is_full(self):
        """Whether it is a full batch and nothing came with it: no snapshot, no exception, no end."""
        return self.snapshot is None and self.drawn is None and not self.is_error and not self.is_end

    def note_answer(self, snapshot, unsigned long long log_number=0, bint is_end=False):
        """Note what came with the answer: the snapshot, the place in the log of times, the end of the shard."""
        self.snapshot, self.log_number, self.is_end = snapshot, log_number, is_end

    def note_error(self, snapshot, drawn, bint is_end):
        """Note that an exception takes the place of the batch, and what came with that."""
        self.snapshot, self.drawn, self.is_end, self.is_error = snapshot, drawn, is_end, True

    def note_hung(self, hung):
        """Note that its worker hung, and is killed."""
        self.hung = hung

    def note_deaths(self, deaths):
        """Note which deaths stand against it: these, and no others."""
        self.deaths = tuple(deaths)

    def note_no_memory(self, int most=-1):
        """Count that there was no memory for its batch; returns how often.

        After `most` times the count starts over, at 0; -1: never.
        """
        self.tries = 0 if self.tries == most else self.tries + 1
        return self.tries

    def replace_keys(self, int kind, payload, bint keeps_deaths=False):
        """Have its batch made of other keys; deaths at the old ones stand against it no more, unless kept."""
        self.kind, self.payload = kind, payload
        if not keeps_deaths:
            self.deaths = ()


@cython.final
cdef class TaskTable:
    """The tasks of one epoch, and what follows from their states.

    Args:
        size: most tasks that are drawn and not answered; see `resize`.
        first: the number of the first task.
        in_order: False: batches are delivered as they come.
        is_stream: of an iterable dataset: each task is for one worker, and positions are the workers' own.
        passed: numbers of tasks that were delivered in an earlier run.
        last_worker: of a stream the worker whose batch came last in an earlier run.
        worker_cursors: the positions of the workers, replaced by `count`; None: they have none.

    Attributes:
        drawn: how many tasks were drawn: the number of the next one.
        delivered: how many batches the user has, without a gap: of a map-style dataset.
        mark: of the last of them; see Task.
        last_mark: of the task drawn last.
        last_worker: of the task drawn last.
        is_drained: the source has no more.
        is_closed: no batch can be taken any more.
        error: what the epoch ends with, after the batches before it; None: nothing.
        reports_first: `Progress` must read each handed task (its snapshot, its failed samples) before the table
            drops it; see `hand`.
        steps: how many steps the user has: each is what one call of `next` returned, or raised in the place of a
            batch. Those of earlier runs count, too.
        marks: the mark at each position since `keep_marks`; see there.
    """

    def __init__(self, int64_t size, int64_t first=0, bint in_order=True, bint is_stream=False, passed=(),
                 int last_worker=-1, worker_cursors=None, mark=None):
        self.tasks = {}
        self.size = size
        self.drawn = self.delivered = first
        self.mark = self.last_mark = mark
        self.in_order = in_order
        self.is_stream = is_stream
        self.passed = set(passed)
        self.answered = set()
        self.last_worker = last_worker
        self.worker_cursors = worker_cursors
        self.reports_first = is_stream

    def resize(self, int64_t size):
        """Allow this many unanswered tasks from now on; tasks in flight are kept."""
        self.size = size

    def close(self):
        """Note that no more batches can be taken."""
        self.is_closed = True

    def report_first(self):
        """Keep each handed task until `Progress` has read and counted it; see `hand`."""
        self.reports_first = True

    def keep_marks(self):
        """Keep the mark at each position from now on; the caller deletes those that it needs no more."""
        self.marks = {self.delivered: self.mark}

    def begin_with(self, worker_cursors):
        """Begin at these positions of the workers; call it before anything is handed over."""
        self.worker_cursors = worker_cursors

    # -- transitions -----------------------------------------------------------------------------

    cdef int move(self, Task task, TaskState to) except -1:
        """Make a transition. Nothing else changes a task's state."""
        cdef TaskState before = task.state
        if (not FOLLOWS[<int>before] >> <int>to & 1
                or (before == GONE and self.tasks.setdefault(task.number, task) is not task)):
            raise InternalError(f"{task!r} cannot become {TaskState(to).name}")
        if to == GONE:
            del self.tasks[task.number]
        self.counts[<int>before] -= 1
        self.counts[<int>to] += 1
        task.state = to
        if before == ASIDE or before == LANDED:
            task.value = None
        elif before == ARRIVED and to != HELD and self.is_stream:
            self.answered.add(task.worker)
        if task is self.again and to != HELD and to != SENT and to != ARRIVED:
            self.again = None
        return 0

    cdef int64_t have(self, TaskState state) noexcept:
        """How many tasks are in a state."""
        return self.counts[<int>state]

    cdef list in_states(self, int states):
        """Return the tasks in some states, each a bit of `states`, in the order in which they were drawn."""
        cdef Task task
        cdef list found = []
        for task in self.tasks.values():
            if states >> <int>task.state & 1:
                found.append(task)
        return found

    cpdef Task draw(self, int kind, payload, int worker=-1, bint is_ready=False):
        """Return a task that was just drawn; unless it `is_ready`, its keys are still to be made ready for sending."""
        cdef Task task = Task.__new__(Task)
        task.kind = kind
        task.payload = payload
        task.worker = worker
        task.number = task.first_number = self.drawn
        self.move(task, HELD if is_ready else DRAWN)
        self.drawn += 1
        self.last_worker = worker
        return task

    def draw_from(self, iterator, RoundRobin round_robin=None, list torn=None):
        """Draw keys from the iterator of a sampler into a new task; returns it, or None: there are no more.

        If a handler of a signal raised in the iterator's own code, which may have ended the iterator, True
        is appended to ``torn``, before any other signal is handled.
        """
        cdef int worker = -1 if round_robin is None else round_robin.next_worker()
        cdef Task task
        found = []
        draw_into(found, iterator, 1, torn)
        if not found:
            return None
        task = self.draw(0, found[0], worker)
        if round_robin is not None:
            round_robin.pass_on(worker)
        return task

    def ready(self, Task task not None, int kind, payload, mark=None, int part=0, int parts=0):
        """Have a drawn task sent as `payload`; one that was delivered in an earlier run is counted instead."""
        task.kind, task.payload, task.part, task.parts = kind, payload, part, parts
        task.mark = self.last_mark = mark
        if task.number in self.passed:
            self.move(task, EARLY)
            self.passed.discard(task.number)
            self.close_gap()
        else:
            self.move(task, HELD)

    def undraw(self, Task task not None):
        """Drop the task that was drawn last: its keys are not valid."""
        self.move(task, GONE)
        self.drawn -= 1

    def note_lost(self, Task task not None, start_failure=None):
        """Note that the worker will not answer the task; the feeder queues a Failure instead.

        A held task counts as sent, so that nobody sends it. `start_failure`: of the worker; it is raised in the
        batch's place.
        """
        if start_failure is not None:
            task.start_failure = start_failure
        if task.state == HELD:
            self.move(task, SENT)

    def make_again(self, tasks):
        """Have tasks sent again."""
        cdef Task task
        for task in tasks:
            if task.state != HELD:
                self.move(task, HELD)

    def reassign(self, Task task not None):
        """Have the task of a dead worker sent to another one, which may hang, too."""
        task.hung = None
        self.make_again((task,))

    def replace_answer(self, Task task not None, answer):
        """Replace the answer of a task that is set aside."""
        if task.state != ASIDE:
            raise InternalError(f"{task!r} has no answer that is set aside")
        task.value = answer

    def ask_again(self, Task task not None, int kind, payload):
        """Have a stream's task sent under a new number, and delivered before all others."""
        self.move(task, HELD)
        del self.tasks[task.number]
        task.kind, task.payload = kind, payload
        task.number = self.drawn
        self.tasks[task.number] = task
        self.drawn += 1
        self.again = task

    cpdef Task arrive(self, int64_t number):
        """Note that the answer to a task has come; it stays with the feeder until it is accepted."""
        cdef Task task = self.tasks.get(number)
        if task is None:
            raise ReaderError("the iterator was closed by another thread while it was waited on")
        if task.state != ARRIVED:
            self.move(task, ARRIVED)
        return task

    cdef int hand(self, Task task) except -1:
        """Note that the user has the batch, or the exception in its place.

        The next task in order, with nothing to report, is counted and dropped at once.
        """
        task.step = self.steps + 1
        if (not self.reports_first and task.snapshot is None and task.number == self.delivered
                and task.state != HANDED):
            self.move(task, GONE)
            self.delivered += 1
            self.mark = task.mark
            if self.have(EARLY):
                self.close_gap()
            return 0
        self.move(task, HANDED)
        self.has_news = self.has_news or task.snapshot is not None or self.have(HANDED) >= LOT
        return 0

    cdef int close_gap(self) except -1:
        """Count the batches that were delivered early, up to the first that the user has not got."""
        cdef Task task
        while True:
            task = self.tasks.get(self.delivered)
            if task is None or task.state != EARLY:
                return 0
            self.move(task, GONE)
            self.delivered += 1
            self.mark = task.mark
            if self.marks is not None:
                self.marks[self.delivered] = task.mark

    def begin(self, mark):
        """Begin at the mark of an order that was just opened."""
        self.mark = self.last_mark = mark

    def note_drained(self):
        """Note that the source has no more tasks."""
        self.is_drained = True

    def note_end(self, error):
        """Have the epoch end with an exception."""
        self.error = error

    def drop_error(self):
        """Note that the user got the error."""
        self.error = None

    def drop(self):
        """Drop each task that the user has not got; none of them counts.

        If, in order, an exception was raised before earlier batches of its group were delivered, drop it too. A
        resume raises it again.
        """
        cdef Task task
        cdef list dropped
        if self.tasks is None:
            return  # the garbage collector was here
        dropped = self.in_states(~(1 << <int>HANDED | 1 << <int>EARLY))
        if self.in_order and dropped:
            first = min([each.first_number for each in dropped])
            dropped += [each for each in self.in_states(1 << <int>HANDED) if each.first_number > first]
        for task in dropped:
            self.move(task, GONE)

    # -- counting --------------------------------------------------------------------------------

    def countable(self):
        """Return the tasks that the user got and that can be counted, in the order of delivery.

        In order, these are the tasks before the first one that the user has not got: a batch that waits for its
        group comes before an exception that was raised meanwhile. Out of order, all are, and of a stream those
        of each worker before the first one of this worker that the user has not got.
        """
        cdef Task task
        cdef list found, waiting
        cdef int64_t first
        if not self.have(HANDED):
            return []
        found = self.in_states(1 << <int>HANDED)
        if not self.is_stream and not self.in_order:
            return found
        found.sort(key=first_number_of)
        waiting = self.in_states(~(1 << <int>HANDED | 1 << <int>EARLY))
        if self.in_order and waiting:
            first = min([(<Task>each).first_number for each in waiting])
            found = [each for each in found if (<Task>each).first_number < first]
        elif waiting:
            firsts = {}
            for task in waiting:
                firsts[task.worker] = min(task.first_number, firsts.get(task.worker, task.first_number))
            found = [task for task in found if task.first_number < firsts.get(task.worker, task.first_number + 1)]
        return found

    def count(self, list tasks not None, worker_cursors):
        """Count tasks; `worker_cursors` are the positions of the workers behind them.

        Return False, and change nothing, if another thread has counted some of them meanwhile.
        """
        cdef Task task
        for task in tasks:
            if task.state != HANDED:
                return False
        self.worker_cursors = worker_cursors
        for task in tasks:
            task.kind, task.payload = TASK_INDICES, b""  # whoever keeps the task needs no keys
            if self.is_stream:
                self.move(task, GONE)
                self.delivered += 1
            else:
                self.move(task, EARLY)
        if not self.is_stream:
            self.close_gap()
        self.has_news = False
        return True

    def position(self):
        """Return `delivered`, `mark`, the numbers of batches that were delivered before an earlier one, and
        `worker_cursors`, of one moment."""
        early = [task.number for task in self.in_states(1 << <int>EARLY)]
        return self.delivered, self.mark, sorted([*early, *self.passed]), self.worker_cursors

    # -- what there is ---------------------------------------------------------------------------

    cdef bint has_space(self) noexcept:
        if self.is_drained or self.again is not None or self.have(ASIDE):
            return False
        if self.have(DRAWN) + self.have(HELD) + self.have(SENT) >= self.size:
            return False
        return self.in_order or self.drawn - self.delivered < MAX_LAG

    cdef bint is_plain(self) noexcept:
        """Whether the next batch can go straight to the user: nothing has landed, is set aside or is asked for
        again, and the epoch is open."""
        return not self.have(LANDED) and not self.have(ASIDE) and self.again is None and not self.is_closed

    @property
    def is_over(self):
        """Whether the source has no more tasks, and the answer to each was accepted and taken up."""
        return self.is_drained and not self.is_awaiting and not self.have(ASIDE)

    @property
    def is_awaiting(self):
        """Whether an answer is still to be accepted."""
        return self.awaits()

    cdef bint awaits(self) noexcept:
        return self.have(DRAWN) + self.have(HELD) + self.have(SENT) + self.have(ARRIVED) > 0

    @property
    def in_flight(self):
        """How many tasks workers have."""
        return self.have(SENT)

    @property
    def next_number(self):
        """The number of the first batch that was not answered."""
        cdef int states = 1 << <int>DRAWN | 1 << <int>HELD | 1 << <int>SENT | 1 << <int>ARRIVED
        return min([task.number for task in self.in_states(states)], default=self.drawn)

    def __contains__(self, number):
        return number in self.tasks

    def __getitem__(self, number):
        return self.tasks[number]

    def __len__(self):
        return len(self.tasks)

    def keys_of(self, number):
        """Return the dataset keys of a batch; [] if it has none, or was delivered."""
        cdef Task task = self.tasks.get(number)
        return [] if task is None or task.state == DRAWN else task.keys

    def those(self, *states):
        """Return the tasks in some states, in the order of delivery."""
        cdef int wanted = 0
        for state in states:
            wanted |= 1 << <int>state
        return sorted(self.in_states(wanted), key=first_number_of)

    def unanswered(self):
        """Return the tasks whose answer was not accepted, in the order of delivery."""
        return self.those(HELD, SENT, ARRIVED)

    def unsent_tasks_of(self, worker):
        """Return the tasks meant for a worker that were not sent to it."""
        return [task for task in self.those(HELD) if task.worker == worker]

    def loads(self):
        """Return how many tasks each worker has or is to get."""
        return Counter([task.worker for task in self.in_states(1 << <int>HELD | 1 << <int>SENT)])

    def is_before_turn(self, Task task not None):
        """Whether the answer must wait, because another task's is asked for again and comes first."""
        return self.again is not None and task is not self.again

    @property
    def is_asked_again(self):
        """Whether an answer is awaited that comes before all others."""
        return self.again is not None

    @property
    def aside(self):
        """The task whose answer was set aside, and whose turn it is; None: there is none."""
        if not self.have(ASIDE) or self.again is not None:
            return None
        return self.those(ASIDE)[0]

    def has_answered(self, worker):
        """Whether an answer of a worker was accepted."""
        return worker in self.answered


def first_number_of(Task task not None):
    """Return a task's place in the order of delivery."""
    return task.first_number
