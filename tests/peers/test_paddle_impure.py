"""Datasets that keep something between samples: the batches are paddle.io's, in every run.

Imports pytest and the harness; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.impure_datasets import SLOW_S
from tests.peers.parity import check_same
from tests.peers.program import LIMIT_S, Story, Verdict

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]

PROGRAM = """
    import paddle
    from paddle.io import DataLoader, get_worker_info
    from tests.peers.impure_datasets import KINDS, SIZE, make
    from tests.peers.inside import describe, tell

    def prepare(worker_id):
        get_worker_info().dataset.prepare(worker_id)

    def batches(kind, workers):
        loader = DataLoader(
            make(kind, %r), batch_size=SIZE, num_workers=workers, worker_init_fn=prepare,
        )
        return [[describe(batch) for batch in loader] for _ in range(2)]

    tell({kind: [batches(kind, workers) for workers in %r for _ in range(%d)] for kind in KINDS})
"""


def stories(runs: int) -> list[object]:
    return [
        pytest.param(
            marks=pytest.mark.compares(
                Story(
                    PROGRAM % (sample_s, workers, runs),
                    limit_s=LIMIT_S if runs == 1 else 140.0,
                    attempts=3,
                )
            ),
            id=f"{name}-{len(workers)}",
        )
        for name, sample_s in (("fast", 0.0), ("slow", SLOW_S))
        for workers in ((0, 2, 5) if runs == 1 else (0, 1, 2, 5),)
    ]


@pytest.mark.parametrize((), stories(1))
def test_what_a_dataset_keeps_between_samples_is_kept_the_same(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


@pytest.mark.evidence
@pytest.mark.parametrize((), stories(3))
def test_what_a_dataset_keeps_between_samples_is_the_same_in_every_run(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)
