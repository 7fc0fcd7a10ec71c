"""What runs in workers: seeds, worker info, init functions and datasets, in paddle.io and here.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.parity import check_same, story
from tests.peers.program import Verdict, compares

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150)]

SEEDS = """
    class Augmented(Rows):
        def __getitem__(self, index):
            return (
                np.random.standard_normal(3),
                random.random(),
                np.random.randint(0, 1 << 30),
                np.asarray(paddle.rand([2])),
            )

    found = []
    for num_workers in (%s):
        np.random.seed(11)
        random.seed(12)
        paddle.seed(13)
        loader = DataLoader(
            Augmented(), batch_size=3, shuffle=True, num_workers=num_workers,
            persistent_workers=%s, use_buffer_reader=%s,
        )
        found.append(epochs(loader, 2))
    found.append(float(np.random.rand()))
    tell(found)
"""


@compares(story(SEEDS % ("1, 2, 3", "False", "True")))
def test_random_augmentation_in_workers_is_reproduced_bit_for_bit(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


@compares(story(SEEDS % ("1, 2, 3", "True", "True")))
def test_random_augmentation_in_persistent_workers_is_reproduced_bit_for_bit(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


# Drawing in a thread beside the main one: the streams are shared, so the main thread keeps still.
@compares(story(SEEDS % ("0,", "False", "True")))
def test_random_augmentation_without_workers_is_reproduced_bit_for_bit(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


INFO = """
    class Info(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            found = get_worker_info()
            if found is None:
                return [index]
            try:
                found.id = 5
                refused = None
            except RuntimeError as error:
                refused = str(error)
            return [
                index, found.id, found.num_workers, found.seed, type(found.dataset).__name__,
                refused, type(found).__name__,
            ]

    np.random.seed(3)
    found = [get_worker_info()]
    for num_workers in (0, 2):
        loader = DataLoader(
            Info(), batch_size=2, num_workers=num_workers,
            collate_fn=lambda batch: [np.zeros(1), batch],
        )
        found.append([batch[1] for _ in range(2) for batch in loader])
    tell(found)
"""


@compares(story(INFO))
def test_get_worker_info_says_the_same(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


INIT = """
    import os
    import sys

    def init(worker_id):
        with open("calls", "a") as file:
            file.write(f"{worker_id} {get_worker_info().id} {get_worker_info().num_workers};")

    found = []
    for args in (dict(), dict(persistent_workers=True), dict(num_workers=0)):
        open("calls", "w").close()
        loader = DataLoader(Rows(), worker_init_fn=init, **{"num_workers": 2, **args})
        epochs(loader)
        with open("calls") as file:
            found.append(sorted(file.read().split(";")))
    tell(found)
"""


@compares(story(INIT))
def test_worker_init_fn_is_called_as_often_and_with_the_same_number(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


CHANGED = """
    class Changing(Rows):
        offset = 0

        def __getitem__(self, index):
            return np.float32(index + self.offset)

    found = []
    for args in (dict(num_workers=0), dict(num_workers=2)):
        dataset = Changing()
        loader = DataLoader(dataset, batch_size=4, **args)
        found.append(epochs(loader, 1))
        dataset.offset = 100
        found.append(epochs(loader, 1))
    dataset = Changing()
    loader = DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True)
    found.append(epochs(loader, 1))
    dataset.offset = 100  # workers that persist do not see it
    found.append(epochs(loader, 1))
    tell(found)
"""


@compares(story(CHANGED))
def test_change_of_the_dataset_between_epochs_is_seen_by_the_same_workers(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


INDICES = """
    import importlib

    # Paddle's own function, by a name that is not changed with the import
    theirs = importlib.import_module(".io.dataloader.collate", "paddle")

    class Seen(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return np.zeros(1), [type(index).__name__, index]

    class NoLength:
        def __getitem__(self, index):
            return np.float32(len(str(index)))

    def own(batch):
        return theirs.default_collate_fn([field for field, _ in batch]), [seen for _, seen in batch]

    found = []
    for num_workers in (0, 2):
        for batch_sampler in (
            [[0, 1], [5]], [(0, 1), (2,)], [range(2), range(3)],
            [["a", "b"], ["c"]], [[(0, 32), (1, 32)], [(2, 64)]],
            [[0], [5]],
            BatchSampler(Seen(), batch_size=4), BatchSampler(Seen(), shuffle=True, batch_size=4),
            BatchSampler(sampler=SubsetRandomSampler([1, 2]), batch_size=2),
            BatchSampler(sampler=WeightedRandomSampler(np.ones(4), 3), batch_size=2),
            DistributedBatchSampler(Seen(), 2, 2, 0, shuffle=True),
        ):
            np.random.seed(1), paddle.seed(1)
            loader = DataLoader(
                Seen(), batch_sampler=batch_sampler, num_workers=num_workers, collate_fn=own
            )
            found.append([describe(batch) for batch in loader])
        plain = DataLoader(Seen(), batch_size=None, num_workers=num_workers)
        found.append([describe(sample) for sample in plain])
        loader = DataLoader(NoLength(), batch_sampler=[["ab", "c"]], num_workers=num_workers)
        found.append([describe(batch) for batch in loader])
    tell(found)
"""


@compares(story(INDICES))
def test_indices_of_every_type_reach_the_dataset_as_they_are(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


RESEEDED = """
    class Augmented(Rows):
        def __getitem__(self, index):
            return np.random.rand(2), random.random()

    def init(worker_id):
        np.random.seed(np.random.get_state()[1][0] % 1000 + worker_id)
        random.seed(worker_id)

    np.random.seed(2)
    loader = DataLoader(Augmented(), batch_size=2, num_workers=2, worker_init_fn=init)
    tell(epochs(loader, 2))
"""


@compares(story(RESEEDED))
def test_worker_init_fn_finds_paddles_seeds_and_may_change_them(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)
