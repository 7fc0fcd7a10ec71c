"""Dispatcher: draws the tasks of an epoch, sends them to workers, and accepts their answers.

Imports the table of tasks, the feeder and the indices of built-in samplers. It belongs to one iterator and the
thread that iterates. What changes both the feeder and the table is done here, so that no signal comes between.
"""
import pickle
from collections import deque

cimport cython
from libc.stdint cimport int64_t

from reader._core.collate.indices cimport IndexBatches, Indices
from reader._core.epoch.round_robin cimport RoundRobin
from reader._core.epoch.tasks cimport ARRIVED, ASIDE, DRAWN, HELD, LANDED, SENT, Task, TaskTable
from reader._core.memory.wait cimport rd_now_ns
from reader._core.wire.channel cimport TASK_ENTER, TASK_EPOCH, TASK_INDICES
from reader._core.wire.feeder cimport Feeder

from reader._core.interpreter.signals import is_interrupt


@cython.final
cdef class Dispatcher:
    """Keeps as many tasks in flight as the table has space for.

    Args:
        table: of the epoch.
        feeder: sends tasks, and keeps each answer until it is accepted.
        source: draws them; see `reader.engine.task_source.TaskSource`.
        round_robin: whose turn it is to take each task; None: the least busy worker takes it.
        reword: called with what the source raises; returns what is raised for it after the last
            batch.
    """

    def __init__(self, TaskTable table not None, feeder, source, RoundRobin round_robin=None, reword=None):
        self.table = table
        self.feeder = feeder
        self.rings = feeder if type(feeder) is Feeder else None
        self.times = getattr(feeder, "times", None)
        self.source = source
        self.round_robin = round_robin
        self.reword = reword
        self.starts = deque()

    # -- drawing and sending ---------------------------------------------------------------------

    cpdef fill(self):
        """Draw and send tasks until the table, or every worker, has as many as it may have.

        What the user's sampler raises is kept until the batches before it are delivered. What a signal's
        handler raises there, as for Ctrl-C, is raised at once.
        """
        cdef TaskTable table = self.table
        cdef Task task
        if self.starts and not self.send_starts():
            return
        if table.have(HELD) and not self.send_held():
            return
        while table.have(DRAWN) or table.has_space():
            task = None
            try:
                task = self.draw()
                if task is None:
                    table.note_drained()
                    return
                if task.state == HELD and not self.send(task):
                    return
            except BaseException as error:
                if is_interrupt(error):
                    raise
                self.end_with(error)
                return

    def draw_first(self):
        """Draw the first task, without sending it. What the source raises ends the epoch, as in `fill`."""
        if self.table.is_drained or len(self.table):
            return
        try:
            if self.draw() is None:
                self.table.note_drained()
        except BaseException as error:
            if is_interrupt(error):
                raise
            self.end_with(error)
            if not isinstance(error, Exception):
                raise

    cdef Task draw(self):
        """Return a task that was just drawn, ready to be sent or delivered in an earlier run; None: there
        are no more."""
        cdef Task task
        cdef int64_t begun_ns
        task = self.draw_built_in()
        if task is not None and task.state == HELD:
            return task
        begun_ns = 0 if self.times is None else rd_now_ns()
        if task is None:
            task = self.table.those(DRAWN)[0] if self.table.have(DRAWN) else self.source.draw()
        if task is not None and task.state == DRAWN:
            count = self.source.encode(task)
            if count is not None:
                self.batches, self.count = self.source.batches, count
        if self.times is not None:
            self.times.drawn_ns += rd_now_ns() - begun_ns
        return task

    cdef Task draw_built_in(self):
        """Draw a batch of a built-in sampler without code of Python; None: the source is to draw it.

        If an index is outside of the dataset, the task stays DRAWN, and `encode` of the source raises the error.
        """
        cdef Indices found
        cdef int worker
        cdef bint is_within
        if self.batches is None or self.table.passed or self.table.have(DRAWN) or not self.table.in_order:
            return None
        found = self.batches.draw()
        if found is None:
            return None
        is_within = found.outside(self.count) is NULL
        worker = -1 if self.round_robin is None else self.round_robin.next_worker()
        task = self.table.draw(TASK_INDICES, found.payload if is_within else found, worker, is_within)
        if self.round_robin is not None:
            self.round_robin.pass_on(worker)
        return task

    def end_with(self, error):
        """End the epoch with what the source raised, after the batches before it."""
        for task in self.table.those(DRAWN, HELD):
            if (<Task>task).number == self.table.drawn - 1:
                self.table.undraw(task)
        self.table.note_drained()
        self.table.note_end(error)  # as it is, in case Ctrl-C interrupts `reword`
        if self.reword is not None:
            self.table.note_end(self.reword(error))

    cdef bint send(self, Task task) except -1:
        """Send a task to its worker. Returns whether that has space for it."""
        if self.rings is not None:
            if not self.rings.dispatch(task.number, task.kind, task.payload, task.worker):
                return False
        else:
            sends = self.feeder.sends
            try:
                if not self.feeder.dispatch(task.number, task.kind, task.payload, task.worker):
                    return False
            except BaseException:  # Ctrl-C after it was sent
                if self.feeder.sends != sends:
                    self.table.move(task, SENT)
                raise
        self.table.move(task, SENT)
        return True

    def send_held(self):
        """Send held tasks while fewer than `size` are in flight. Always send the earliest one: the loop waits for
        it, and later tasks may already fill the table. Returns False if no worker has space.
        """
        cdef TaskTable table = self.table
        cdef Task task
        for task in table.those(HELD):
            if table.have(SENT) >= table.size and task is not table.again:
                # by numbers, as the feeder orders answers: one that is asked for again has a new one
                first = min([each.number for each in table.those(SENT, ARRIVED)], default=task.number)
                if task.number > first:
                    return True
            if not self.send(task):
                return False
        return True

    def add_start(self, worker, start):
        """Have an EpochStart sent to a worker, before anything else."""
        self.starts.append((worker, TASK_EPOCH, pickle.dumps(start, 5)))
        if start.sends_state:
            self.starts.append((worker, TASK_ENTER, b""))

    @property
    def has_unsent(self):
        """Whether something is still to be sent: no worker had space, or Ctrl-C came."""
        return bool(self.table.have(HELD) or self.table.have(DRAWN) or self.starts)

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

    # -- answers ---------------------------------------------------------------------------------

    cdef int accept(self, Task task) except -1:
        """Accept the answer to a task, unless it was accepted; until then the feeder returns it again."""
        if task.state == ARRIVED:
            if self.rings is not None:
                self.rings.accept()
            else:
                self.feeder.accept()
        return 0

    def set_aside(self, Task task not None, answer):
        """Accept an answer that came before its turn, and keep it outside of the arena."""
        if task.state != ASIDE:
            self.accept(task)
            self.table.move(task, ASIDE)
        task.value = answer

    def land(self, Task task not None, batch):
        """Accept an answer of which the user's batch was made; it is handed over later, in a group."""
        self.accept(task)
        self.table.move(task, LANDED)
        task.value = batch

    cpdef int hand(self, Task task) except -1:
        """Accept an answer, and note that the user has it."""
        self.accept(task)
        self.table.hand(task)
        return 0
