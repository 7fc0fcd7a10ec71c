"""Failure: delivered in place of a batch that cannot come.

Imports nothing of the project. The Feeder and the LocalChannel return it; the engine makes an exception of
it.
"""
import enum


class FailureKind(str, enum.Enum):
    """Why a batch did not come."""

    END = "end"      # a worker's copy of an iterable dataset is exhausted; payload: its last state
    ERROR = "error"  # the dataset's code raised; payload: the error that the worker sent
    FULL = "full"    # there is no memory for it; see the byte counts and the knob
    LOST = "lost"    # its worker died, and the batch will not be made
    OPEN = "open"    # it came and cannot be opened; payload: the exception
    REFUSED = "refused"  # a check refuses it though its sums agree; payload: the check, as text
    START = "start"  # a worker could not start; payload: the error that it sent; seq is -1

    __str__ = str.__str__


class Failure:
    """What `Feeder.take` returns in place of a batch that did not come; the caller owns it.

    ``kind``: a FailureKind, which also says what ``payload`` is; ``seq``, ``epoch``: the batch;
    ``worker``: the number of the worker that had it; the other fields are for FULL.
    """

    __slots__ = ("epoch", "have_bytes", "kind", "knob", "limit_bytes", "need_bytes", "payload",
                 "seq", "worker")

    def __init__(self, kind, seq, epoch, worker, payload=None, need_bytes=0, have_bytes=0,
                 limit_bytes=0, knob="max_bytes"):
        self.kind = kind
        self.seq = seq
        self.epoch = epoch
        self.worker = worker
        self.payload = payload
        self.need_bytes = need_bytes
        self.have_bytes = have_bytes
        self.limit_bytes = limit_bytes
        self.knob = knob

    def as_kind(self, kind):
        """Return one of another kind, in place of the same batch."""
        return Failure(kind, self.seq, self.epoch, self.worker, self.payload, self.need_bytes,
                       self.have_bytes, self.limit_bytes, self.knob)
