"""Programs of the parity tests: the text before their loaders, and when two verdicts agree.

Imports the harness. Holds nothing.
"""

from __future__ import annotations

from tests.peers.program import Story, Verdict

HEAD = """
    import random
    import threading
    import numpy as np
    import paddle
    from paddle.io import (
        BatchSampler, DataLoader, Dataset, DistributedBatchSampler, IterableDataset, RandomSampler,
        SequenceSampler, SubsetRandomSampler, WeightedRandomSampler, get_worker_info,
    )
    from tests.peers.inside import describe, tell

    class Rows(Dataset):
        def __init__(self, count=11):
            self.count = count

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            return np.full(2, index, "float32"), index

    class Stream(IterableDataset):
        def __init__(self, count=7):
            self.count = count

        def __iter__(self):
            for index in range(self.count):
                yield np.full(2, index, "float32"), index

    def epochs(loader, count=3, pause_s=0.0):
        found = []
        for _ in range(count):
            found.append([])
            for batch in loader:
                found[-1].append(describe(batch))
                threading.Event().wait(pause_s)
        return found
"""


def story(text: str) -> Story:
    """A story with the classes above in front."""
    return Story(HEAD + "\n" + text)


def check_same(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert theirs.result, "there is nothing to compare"
    assert ours.result == theirs.result
