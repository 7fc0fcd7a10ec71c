"""What `Feeder.take` returns in the place of a batch that did not come.

Imports nothing. A Failure is made by the Feeder in the trainer and belongs to who took it.
"""


class Failure:
    """Why a batch did not come: what `Feeder.take` returns in its place."""

    __slots__ = ("epoch", "have_bytes", "kind", "knob", "limit_bytes", "need_bytes", "payload",
                 "seq", "worker")

    def __init__(self, kind, seq, epoch, worker, payload=None, need_bytes=0, have_bytes=0,
                 limit_bytes=0, knob="max_bytes"):
        self.kind = kind  # "end", "error", "full", "lost", "open" or "start"
        self.seq = seq
        self.epoch = epoch
        self.worker = worker
        self.payload = payload
        self.need_bytes = need_bytes
        self.have_bytes = have_bytes
        self.limit_bytes = limit_bytes
        self.knob = knob
