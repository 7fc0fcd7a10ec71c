"""What bounds a loop, from measured numbers: each word, and its sentence."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from reader.observe.judge import judge
from reader.observe.measured import Measured, SlowSample
from reader.observe.replay import Replay

STAGES = {"draw": 0.0, "queue": 0.0, "fetch": 18.0, "collate": 1.0}
# ten seconds, 100 batches: two workers that compute all the time; the step takes 20 ms
BUSY = Measured(
    seconds=10.0,
    batches=100,
    first_wait_s=0.1,
    wait_s=7.9,
    stages=STAGES,
    workers=2,
    uses_threads=False,
    busy_s=19.0,
    cpu_s=18.5,
    runnable_s=0.2,
    cores=2,
    idle_cores=0.0,
    prefetch=4,
)
SLOW = [SlowSample(17, 3, 5, 0, 6.0)]


@pytest.mark.parametrize(
    ("changed", "bound_by"),
    [
        ({}, "dataset"),
        ({"wait_s": 0.1}, "step"),
        ({"cores": 8, "idle_cores": 6.0}, "workers"),
        ({"workers": 0, "busy_s": 7.9, "cpu_s": 9.9, "idle_cores": 1.0}, "workers"),
        ({"cpu_s": 2.0}, "storage"),
        ({"workers": 0, "busy_s": 7.9, "cpu_s": 1.0, "runnable_s": None}, "storage"),
        ({"cpu_s": 2.0, "network_s": 15.0}, "network"),
        ({"cpu_s": 2.0, "network_s": 5.0}, "storage"),
        ({"wait_s": 0.1, "network_s": 15.0}, "step"),
        ({"cpu_s": 2.0, "network_s": 15.0, "is_remote": True}, "network"),
        ({"cpu_s": 9.0, "runnable_s": 9.0}, "cores"),
        ({"stages": STAGES | {"fetch": 3.0, "collate": 16.0}}, "collate"),
        ({"first_wait_s": 6.0, "wait_s": 2.0}, "start"),
        ({"stages": STAGES | {"draw": 7.0}, "wait_s": 0.5}, "sampler"),
        ({"uses_threads": True, "cpu_s": 9.8, "runnable_s": 0.1}, "gil"),
        ({"busy_s": 6.0}, "prefetch"),
        ({"slow_samples": SLOW, "usual_sample_s": 0.002}, "sample"),
        ({"transfer_wait_s": 6.0}, "transfer"),
        ({"memory_stall_s": 4.0}, "memory"),
        ({"memory_events": 9, "major_faults": 5000}, "memory"),
        ({"memory_stall_s": 0.0, "memory_events": 9, "major_faults": 5000}, "dataset"),
        (
            {"memory_stall_s": 1.0, "memory_events": 9, "major_faults": 5000, "user_share": 0.1},
            "memory",
        ),
        ({"decoder": "PIL.Image"}, "decoding"),
        ({"stopped_s": 3.0}, "cores"),
        # its own work fills the cores: the remedy is less work, for no core is free
        ({"cpu_s": 13.0, "runnable_s": 6.0, "own_cpu_s": 5.0}, "dataset"),
        ({"cpu_s": 6.0, "runnable_s": 9.0, "own_cpu_s": 1.0}, "cores"),
        (
            {"cpu_s": 6.0, "runnable_s": 9.0, "stages": STAGES | {"fetch": 3.0, "collate": 16.0}},
            "collate",
        ),
        # epochs that begin with new workers
        ({"epochs": 10, "epoch_wait_s": 6.0}, "start"),
        # a step in Python, and threads: it never waits for a batch, and always for the GIL
        (
            {
                "uses_threads": True,
                "wait_s": 0.0,
                "busy_s": 6.0,
                "cpu_s": 4.0,
                "own_cpu_s": 5.5,
                "own_runnable_s": 0.2,
            },
            "gil",
        ),
        (
            {
                "uses_threads": True,
                "wait_s": 0.0,
                "busy_s": 1.0,
                "cpu_s": 0.9,
                "own_cpu_s": 9.0,
                "own_runnable_s": 0.8,
            },
            "step",
        ),
    ],
)
def test_the_verdict_names_what_bounds_a_loop(changed: dict[str, Any], bound_by: str) -> None:
    verdict = judge(dataclasses.replace(BUSY, **changed))
    assert verdict.bound_by == bound_by
    assert verdict.sentence.endswith(".")
    assert verdict.gain is None or verdict.gain >= 1


def test_a_network_says_what_it_gives_and_what_is_needed_and_names_no_workers_if_it_is_full() -> (
    None
):
    waits = {"cpu_s": 2.0, "network_s": 15.2, "network_nbytes": 500_000_000}
    waits |= {"stored_nbytes": 400_000_000, "transfers": 8.0, "cache_limit": 1 << 30}
    full = judge(dataclasses.replace(BUSY, cores=8, idle_cores=6.0, **waits))
    assert full.sentence == (
        "The loop waits 80% of its time: 2 workers wait in 80% of the time that batches take for"
        " bytes of the store. The network gives 50 MB/s, and the step needs 200 MB/s."
    )
    assert full.advice.startswith("More workers do not help. Come nearer to the store")
    assert full.advice.endswith("A ShardCache that holds the set has it from the second epoch on.")
    assert full.options == {}
    assert full.gain is not None
    assert full.gain > 2
    small = judge(dataclasses.replace(BUSY, **waits, evicted_nbytes=3 << 30))
    assert "raise limit= of ShardCache, which is 1 GiB, and 3 GiB went from it" in small.advice
    few = judge(dataclasses.replace(BUSY, **{**waits, "transfers": 1.5}))
    assert few.advice.startswith("1.5 transfers are under way at a time: have it know what comes")


def test_the_gain_is_that_of_a_loop_without_waiting() -> None:
    """Two workers make a batch in 95 ms, and the step takes 20 ms: ten make enough."""
    verdict = judge(dataclasses.replace(BUSY, cores=16, idle_cores=14.0))
    assert "num_workers=10" in verdict.advice
    assert verdict.gain == pytest.approx(10 / 2.1, rel=0.02)


def test_other_programs_that_take_cores_are_reported() -> None:
    beside = judge(dataclasses.replace(BUSY, cores=4, own_cpu_s=0.5))
    assert beside.bound_by == "dataset"
    assert "other programs take 2.1 of 4 cores" in beside.sentence
    assert "other programs" not in judge(dataclasses.replace(BUSY, own_cpu_s=0.5)).sentence


THREADS = (
    "Other threads of the trainer, such as torch's, take 0.5 of 2 cores: compare OMP_NUM_THREADS"
)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"wait_s": 0.1},
        {"decoder": "PIL.Image"},
        {"cpu_s": 6.0, "runnable_s": 9.0, "own_cpu_s": 1.0},
        {"stopped_s": 3.0},
    ],
)
def test_threads_of_the_trainer_that_take_the_cores_are_reported(changed: dict[str, Any]) -> None:
    alone = dataclasses.replace(BUSY, **{"own_cpu_s": 1.0, **changed})
    beside = dataclasses.replace(alone, threads_s=5.0)
    assert THREADS in judge(beside).advice
    assert "OMP" not in judge(alone).advice
    for roomy in ({"idle_cores": 1.0}, {"idle_cores": None}, {"threads_s": 1.0}):
        assert "OMP" not in judge(dataclasses.replace(beside, **roomy)).advice  # type: ignore[arg-type]
    assert judge(dataclasses.replace(alone, wait_s=0.1)).gain == 1.0
    assert judge(dataclasses.replace(beside, wait_s=0.1)).gain is None


def test_threads_of_the_trainer_do_not_count_as_another_program() -> None:
    beside = dataclasses.replace(BUSY, cores=4, own_cpu_s=0.5)
    assert "other programs take 2.1 of 4" in judge(beside).sentence
    own = dataclasses.replace(beside, threads_s=15.0)
    assert "other programs" not in judge(own).sentence


def test_the_slow_sample_is_named() -> None:
    verdict = judge(dataclasses.replace(BUSY, slow_samples=SLOW, usual_sample_s=0.002))
    assert "sample 17 of batch 5 took 6.00 s of 10.00, and others 2 ms" in verdict.sentence
    assert verdict.advice.startswith("Look at that sample, or make more batches ahead")


def test_several_slow_samples_are_counted() -> None:
    several = dataclasses.replace(
        BUSY, slow_samples=SLOW, usual_sample_s=0.002, slow_batches=3, slow_s=9.5
    )
    sentence = judge(several).sentence
    assert "in 3 of 100 batches one sample takes most of the time, 50% of making" in sentence
    assert "sample 17 of batch 5 took 6.00 s" in sentence


INLINE = {"workers": 0, "busy_s": 7.9, "cpu_s": 7.9, "idle_cores": 0.0, "runnable_s": None}
ALONE: dict[str, Any] = {"workers": 0, "slow_samples": SLOW, "usual_sample_s": 0.002}
CACHED: dict[str, Any] = {"decoder": "reader.images", "cached": 1.0}


@pytest.mark.parametrize(
    ("changed", "bound_by", "wanted", "unwanted"),
    [
        (ALONE, "sample", "num_workers=1", "prefetch_factor"),
        ({"decoder": "reader.images"}, "decoding", "reader.cache", "(reader.images)"),
        ({"decoder": "PIL"}, "decoding", "(reader.images)", "Its cache"),
        (CACHED, "dataset", "after the cache", "reader.cache"),
        ({**CACHED, "keeps_files": True}, "decoding", 'what="pixels"', "Its cache had"),
        ({**CACHED, "cached": 0.1}, "decoding", "Its cache had 10% of the samples", "Or cache"),
        ({"cached": 1.0, "cpu_s": 2.0}, "storage", "", "cache"),
        ({"cached": 0.0, "cpu_s": 2.0}, "storage", "Its cache had 0%", "Or cache"),
        ({"cpu_s": 2.0, "idle_cores": None}, "storage", "Cache what is read", "num_workers"),
        (
            {"stages": STAGES | {"fetch": 3.0, "collate": 16.0}, "has_collate_fn": False},
            "collate",
            "fewer and smaller fields",
            "collate_fn",
        ),
        ({**INLINE, "memory_stall_s": 4.0}, "memory", "Free memory", "num_workers"),
    ],
)
def test_advice_does_not_repeat_what_the_program_does(
    changed: dict[str, Any], bound_by: str, wanted: str, unwanted: str
) -> None:
    verdict = judge(dataclasses.replace(BUSY, **changed))
    assert verdict.bound_by == bound_by
    assert wanted in verdict.advice, verdict.advice
    assert unwanted not in verdict.advice, verdict.advice


@pytest.mark.parametrize("in_order", [True, False])
def test_in_order_is_named_where_it_is_on(in_order: bool) -> None:
    """Two workers, one of which takes ten times as long: all wait for it."""
    worker = np.arange(40) % 2
    make = np.where(worker == 1, 0.1, 0.01)
    step, nothing = np.full(40, 0.001), np.zeros(40)
    replay = Replay(make, step, make, nothing, worker, nothing, 2, 4)
    seen = dataclasses.replace(
        BUSY, seconds=2.1, batches=40, wait_s=2.0, busy_s=2.2, cpu_s=2.2, worker_s=[0.01, 0.1],
        stages={"fetch": 2.2, "collate": 0.0}, in_order=in_order, first_wait_s=0.0,
    )  # fmt: skip
    verdict = judge(seen, replay)
    assert verdict.bound_by == "straggler"
    assert ("in_order=False" in verdict.advice) == in_order


def test_a_slow_sample_within_the_first_batch_is_no_start() -> None:
    first = [SlowSample(17, 3, 0, 0, 6.0)]
    late = dataclasses.replace(
        BUSY, first_wait_s=6.0, wait_s=2.0, slow_samples=first, usual_sample_s=0.002
    )
    assert judge(late).bound_by == "sample"
    begun = dataclasses.replace(late, slow_samples=[dataclasses.replace(first[0], row=0)])
    assert judge(begun).bound_by == "start"


@pytest.mark.parametrize(
    "changed",
    [
        {"seconds": 0.0, "batches": 0, "first_wait_s": 0.0, "wait_s": 0.0, "busy_s": 0.0},
        {"seconds": 1e-9, "batches": 1, "busy_s": 0.0, "stages": {}},
        {"cpu_s": None, "runnable_s": None, "idle_cores": None},
        {"workers": 0, "cpu_s": None, "runnable_s": None, "idle_cores": None},
        {"wait_s": 9.9, "idle_cores": 1e3, "cores": 1e3},
    ],
)
def test_a_verdict_is_given_for_the_fewest_and_the_most_records(changed: dict[str, Any]) -> None:
    assert judge(dataclasses.replace(BUSY, **changed)).sentence


@pytest.mark.parametrize("persists", [False, True])
def test_workers_that_persist_are_not_advised_to(persists: bool) -> None:
    late = dataclasses.replace(BUSY, first_wait_s=6.0, wait_s=2.0, persists=persists)
    advice = judge(late).advice
    assert ("persistent_workers" in advice) == (not persists)
    assert "when they are first used" in advice


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"cores": 8, "idle_cores": 6.0}, "workers"), ({"cpu_s": 2.0}, "storage")],
)
def test_advice_for_a_pool_names_the_pool(changed: dict[str, Any], words: str) -> None:
    found = judge(dataclasses.replace(BUSY, **changed, shares_workers=True))
    assert found.bound_by == words
    assert "WorkerPool(" in found.advice
    assert "num_workers" not in found.advice
    assert found.options == {}


def test_memory_of_a_pool_is_that_of_its_workers() -> None:
    found = judge(dataclasses.replace(BUSY, memory_stall_s=4.0, shares_workers=True))
    assert "take a smaller WorkerPool or prefetch_factor" in found.advice


def test_workers_busy_for_other_loaders_do_not_lack_tasks() -> None:
    idle = dataclasses.replace(BUSY, busy_s=6.0)
    assert judge(idle).bound_by == "prefetch"
    assert judge(dataclasses.replace(idle, shares_workers=True)).bound_by != "prefetch"
    others = dataclasses.replace(idle, shares_workers=True, others_s=13.0, others_cpu_s=12.0)
    assert judge(others).bound_by != "prefetch"


AWAY = dataclasses.replace(BUSY, is_remote=True, cores=2, idle_cores=0.0, room=2)


def loop_of(seen: Measured, travel_s: float, lead_s: float = 0.001) -> Replay:
    """A loop whose workers spend the measured times on batches."""
    each = np.ones(seen.batches)
    return Replay(
        make_s=each * (seen.busy_s / seen.batches),
        step_s=each * 0.02,
        fetch_s=each * (seen.stages["fetch"] / seen.batches),
        slow_s=each * 0.0,
        worker=np.arange(seen.batches) % seen.workers,
        gap_s=np.where(np.arange(seen.batches) == 0, 1e-9, 0.0),
        workers=seen.workers,
        ahead=seen.prefetch,
        lead_s=lead_s,
        travel_s=each * travel_s,
    )


def test_capacity_of_a_cluster_counts_and_not_the_local_cores() -> None:
    more = dataclasses.replace(AWAY, room=16)
    found = judge(more, loop_of(more, 0.003))
    assert found.bound_by == "workers"
    assert 10 <= found.options["num_workers"] <= 16
    assert "room for 16" in found.advice
    full = judge(AWAY, loop_of(AWAY, 0.003))
    assert full.bound_by == "dataset"
    assert "no room for more workers" in full.advice
    unknown = dataclasses.replace(more, room=None)
    assert judge(unknown, loop_of(unknown, 0.003)).bound_by == "dataset"


def test_a_start_on_a_cluster_is_reported_as_a_start() -> None:
    begins = dataclasses.replace(AWAY, first_wait_s=6.0, wait_s=2.0)
    found = judge(begins)
    assert (found.bound_by, found.gain, found.options) == ("start", None, {})
    assert found.advice.startswith("Workers start on the cluster once")


def test_a_pool_on_a_cluster_is_sized_by_each_program() -> None:
    more = dataclasses.replace(AWAY, room=16, shares_workers=True)
    found = judge(more, loop_of(more, 0.003))
    assert "num_workers=" in found.advice
    assert "WorkerPool" not in found.advice


def test_cluster_workers_that_wait_or_have_no_core_are_distinguished() -> None:
    waits = dataclasses.replace(AWAY, cpu_s=2.0, room=8)
    found = judge(waits, loop_of(waits, 0.003))
    assert found.bound_by == "storage"
    assert "resources=" in found.advice
    crowded = dataclasses.replace(AWAY, cpu_s=9.0, runnable_s=9.0, own_cpu_s=1.0)
    found = judge(crowded, loop_of(crowded, 0.003))
    assert found.bound_by == "cores"
    assert "resources=" in found.advice


def test_slow_transfers_are_distinguished_from_too_few_batches_ahead() -> None:
    idle = dataclasses.replace(AWAY, busy_s=1.0, cpu_s=1.0, stages=STAGES | {"fetch": 0.9})
    found = judge(idle, loop_of(idle, 0.3))
    assert found.bound_by == "transfer"
    assert "300 ms from its node" in found.sentence
    assert "uint8" in found.advice
    # small ones: a round trip each, and more of them may be in flight
    few = dataclasses.replace(
        idle,
        seconds=1.0,
        wait_s=0.8,
        busy_s=0.1,
        cpu_s=0.1,
        stages=STAGES | {"fetch": 0.1, "collate": 0.0},
    )
    loop = dataclasses.replace(loop_of(few, 0.004, 0.004), step_s=np.full(100, 1e-4))
    assert judge(few, dataclasses.replace(loop, ahead=2)).bound_by == "prefetch"


def test_with_enough_memory_the_time_in_the_users_code_would_remain() -> None:
    short = dataclasses.replace(BUSY, memory_stall_s=6.0, cpu_s=3.8, user_share=0.5)
    found = judge(short, loop_of(short, 0.0))
    # a batch of 190 ms took 38 ms of a core, half of that in the kernel: the step bounds the loop
    assert found.bound_by == "memory"
    assert found.gain == pytest.approx(9.5 / 2.1, rel=0.1)


def test_capacity_for_many_workers_is_tried_by_few_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, seconds = [], Replay.seconds

    def counted(self: Replay, *args: Any, **options: Any) -> float:
        tries.append(1)
        return seconds(self, *args, **options)

    monkeypatch.setattr(Replay, "seconds", counted)
    many = dataclasses.replace(AWAY, room=256)
    found = judge(many, loop_of(many, 0.003))
    assert 10 <= found.options["num_workers"] <= 16
    assert len(tries) < 32


def test_waiting_workers_on_a_full_cluster_are_advised_to_take_fewer_cores() -> None:
    for room in (2, None):
        full = dataclasses.replace(AWAY, cpu_s=2.0, room=room)
        found = judge(full, loop_of(full, 0.003))
        assert found.bound_by == "storage"
        assert found.options == {}
        assert "num_workers" not in found.advice
        assert "resources=" in found.advice
        assert found.gain is None


def test_making_batches_is_not_blamed_if_their_transfer_takes_most() -> None:
    tiny = dataclasses.replace(
        AWAY,
        busy_s=0.1,
        cpu_s=0.02,
        runnable_s=0.08,
        stages=STAGES | {"fetch": 0.02, "collate": 0.08},
    )
    loop = dataclasses.replace(loop_of(tiny, 0.05, 0.05), step_s=np.full(100, 1e-3))
    found = judge(tiny, loop)
    assert found.bound_by not in ("collate", "cores")
    dear = dataclasses.replace(AWAY, stages=STAGES | {"fetch": 2.0, "collate": 17.0})
    assert judge(dear, loop_of(dear, 0.003)).bound_by == "collate"
