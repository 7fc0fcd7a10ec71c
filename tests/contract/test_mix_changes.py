"""A mix whose weights are changed while it is read: one sequence, in loaders of any layout."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reader
from reader import ConfigError, ConfigTypeError, DataLoader, Mix, MixSampler, StateError

SIZE, LENGTH = 4, 960
SOURCES = {"web": range(50), "code": range(1000, 1020), "books": range(2000, 2031)}
WEIGHTS = [(0, {"web": 1, "code": 2, "books": 0}, "linear"), (50, [3, 3, 4])]


def changes_from(at: int) -> list[list[tuple[Any, int | None]]]:
    """Return some changes, as arguments of `change_weights`, the first of them at a sample."""
    return [
        [([1, 0, 3], at)],
        [([5, 1, 1], at), ([0, 2, 1], at + 164)],
        [([(at, [1, 1, 1], "linear"), (at + 180, [0, 1, 9])], None)],
    ]


def mix_of(stop: Any = "never", epoch: int = 0, **options: Any) -> Mix:
    if stop == "never":
        options = {"length": LENGTH, **options}
    found = Mix(SOURCES, WEIGHTS, stop=stop, seed=3, **options)
    found.set_epoch(epoch)
    return found


def sequence_of(changes: Any, epoch: int = 0) -> list[int]:
    """Return the samples of an epoch whose changes were all known before it."""
    mix = mix_of(epoch=epoch)
    sampler = MixSampler(mix)
    for weights, at in changes:
        sampler.change_weights(weights, at)
    sampler.set_epoch(epoch)
    return [mix[key] for key in sampler]


def loader_of(rank: int = 0, ranks: int = 1, **options: Any) -> tuple[DataLoader, MixSampler]:
    mix = mix_of()
    sampler = MixSampler(mix, ranks, rank, changes=options.pop("changes", None), every=40)
    return DataLoader(mix, batch_size=SIZE, sampler=sampler, **options), sampler


def numbers_of(batches: Any) -> list[int]:
    return [int(each) for batch in batches for each in batch]


def dealt(ranks: list[list[int]]) -> list[int]:
    """Return the samples of ranks in the order of the one sequence."""
    return [each for turn in zip(*ranks, strict=True) for each in turn]


def check_passes(samples: list[int]) -> None:
    """Each source gives all its samples once before it gives one again."""
    for source in SOURCES.values():
        own = [each for each in samples if each in source]
        for begin in range(0, len(own), len(source)):
            part = own[begin : begin + len(source)]
            assert len(set(part)) == len(part)


# ---- one sequence ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "workers",
    [
        {"num_workers": 0},
        {"num_workers": 1},
        {"num_workers": 2},
        {"num_workers": 5, "persistent_workers": True},
        {"num_workers": 2, "worker_type": "thread"},
        {"num_workers": 1, "start_method": "spawn", "persistent_workers": True},
        {"num_workers": 2, "prefetch_next_epoch": True, "persistent_workers": True},
    ],
    ids=str,
)
def test_06_a_change_while_workers_are_ahead_gives_one_sequence(workers: dict[str, Any]) -> None:
    changes = changes_from(96)[1]
    loader, sampler = loader_of(**workers)
    with loader:
        iterator = iter(loader)
        found = numbers_of([next(iterator) for _ in range(3)])
        for weights, at in changes:
            sampler.change_weights(weights, at=at)
        found += numbers_of(iterator)
        assert found == sequence_of(changes)
        check_passes(found)
        assert numbers_of(loader) == sequence_of_next_epoch(changes)


def sequence_of_next_epoch(changes: Any) -> list[int]:
    mix = mix_of()
    sampler = MixSampler(mix)
    for weights, at in changes:
        sampler.change_weights(weights, at)
    list(sampler)
    mix.set_epoch(1)
    return [mix[key] for key in sampler]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_06_ranks_share_the_sequence_of_a_change(ranks: int) -> None:
    changes = changes_from(480)[2]
    shares = []
    for rank in range(ranks):
        loader, sampler = loader_of(rank, ranks, num_workers=(0, 2)[rank == 1])
        with loader:
            iterator = iter(loader)
            found = numbers_of([next(iterator)])
            for weights, at in changes:
                sampler.change_weights(weights, at=at)
            shares.append(found + numbers_of(iterator))
    assert dealt(shares)[:LENGTH] == sequence_of(changes)


LAYOUTS: list[dict[str, Any]] = [
    *({"num_workers": 0} for _ in range(14)),
    {"num_workers": 2, "worker_type": "thread"},
    {"num_workers": 1},
    {"num_workers": 2},
    {"num_workers": 5},
]


@pytest.mark.parametrize(
    "resumes", [25, pytest.param(110, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])]
)
def test_01_resumes_in_other_layouts_repeat_the_changes(resumes: int) -> None:
    rng = random.Random(49)
    for _ in range(resumes):
        before, after = rng.choice([1, 2, 3, 8]), rng.choice([1, 2, 3, 8])
        changed_at = rng.randrange(1, 5)  # batches of the loop, of which five workers make 10 more
        changes = rng.choice(changes_from((changed_at + 10) * SIZE * before + rng.randrange(50)))
        batches = rng.randrange(changed_at, LENGTH // SIZE // before)
        ranks, states = [], []
        for rank in range(before):
            loader, sampler = loader_of(rank, before, **rng.choice(LAYOUTS))
            with loader:
                iterator = iter(loader)
                found = numbers_of([next(iterator) for _ in range(changed_at)])
                for weights, at in changes:
                    sampler.change_weights(weights, at)
                found += numbers_of([next(iterator) for _ in range(batches - changed_at)])
                ranks.append(found)
                states.append(json.loads(json.dumps(loader.state_dict())))
        rest = []
        state = rng.choice(states)
        for rank in range(after):
            loader, _ = loader_of(rank, after, **rng.choice(LAYOUTS))
            with loader:
                loader.load_state_dict(state)
                rest.append(numbers_of(loader))
        whole = dealt(ranks) + dealt(rest)
        assert whole[:LENGTH] == sequence_of(changes)
        assert len(whole) < LENGTH + after
        check_passes(whole[:LENGTH])


@settings(max_examples=30, deadline=None)
@given(st.data(), st.sampled_from(["never", "all"]))
def test_any_changes_lose_no_sample_and_repeat_none(data: st.DataObject, stop: Any) -> None:
    mix = Mix(SOURCES, stop=stop, **({"length": 300} if stop == "never" else {}))
    sampler = MixSampler(mix)
    keys: list[Any] = []
    weights = st.lists(st.integers(1 if stop == "all" else 0, 9), min_size=3, max_size=3)
    for key in sampler:
        keys.append(key)
        if data.draw(st.integers(0, 40)) == 0:
            at = sampler.position + data.draw(st.integers(0, 60))
            entries: Any = [(at, data.draw(weights.filter(any)))]
            if data.draw(st.booleans()):
                entries = [(*entries[0], "linear"), (at + 30, data.draw(weights.filter(any)))]
            sampler.change_weights(entries)
    assert len(keys) == len(mix)
    for number, source in enumerate(SOURCES.values()):
        counts = [count for source_number, count in keys if source_number == number]
        assert counts == list(range(len(counts)))
        assert stop == "never" or len(counts) == len(source)
    again = MixSampler(mix)
    again.load_state_dict({**json.loads(json.dumps(sampler.state_dict())), "epoch": 0})
    assert list(again) == keys


GLOO = """
import json, sys
import torch.distributed as dist
from reader import DataLoader, Mix, MixSampler
rank, ranks, address, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"file://{address}", rank=rank, world_size=ranks)
mix = Mix({"web": range(50), "code": range(1000, 1020)}, stop="never", length=240, seed=3)
sampler = MixSampler(mix)
assert (sampler.num_replicas, sampler.rank) == (ranks, rank)
found = []
with DataLoader(mix, batch_size=4, sampler=sampler, num_workers=rank) as loader:
    for step, batch in enumerate(loader):
        found += batch.tolist()
        chosen = [[1, 3] if rank == 0 else None]  # rank 0 decides by what it has seen
        dist.broadcast_object_list(chosen)
        if step == 2:
            sampler.change_weights(chosen[0], at=120)
open(f"{folder}/{rank}.json", "w").write(json.dumps(found))
dist.destroy_process_group()
"""


def test_06_gloo_ranks_change_weights_that_one_of_them_chose(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ranks = 3
    runs = [
        subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-c", GLOO),
                *(str(rank), str(ranks), str(tmp_path / "meet"), str(tmp_path)),
            ]
        )
        for rank in range(ranks)
    ]
    assert [run.wait(120) for run in runs] == [0] * ranks
    shares = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(ranks)]
    mix = Mix({"web": range(50), "code": range(1000, 1020)}, stop="never", length=240, seed=3)
    sampler = MixSampler(mix, 1, 0)
    sampler.change_weights([1, 3], at=120)
    assert dealt(shares) == [mix[key] for key in sampler]


# ---- what a change is --------------------------------------------------------------------------


def test_a_change_too_early_is_refused_and_changes_nothing() -> None:
    loader, sampler = loader_of()
    with loader:
        iterator = iter(loader)
        found = numbers_of([next(iterator) for _ in range(5)])
        assert sampler.position == 20
        with pytest.raises(
            ConfigError,
            match=r"at sample 19: this rank has drawn the samples before 20, which workers make",
        ):
            sampler.change_weights([1, 1, 1], at=19)
        sampler.change_weights([0, 0, 1], at=20)
        sampler.change_weights([0, 1, 0], at=40)
        sampler.change_weights([0, 1, 0], at=30)  # the one at 40 no longer holds
        found += numbers_of([next(iterator) for _ in range(10)])
        assert all(each >= 2000 for each in found[20:30])
        assert all(1000 <= each < 2000 for each in found[30:60])
        iterator.close()


def test_a_change_does_not_bend_a_linear_stretch_that_has_begun() -> None:
    mix = Mix([range(500), range(500)], stop="never", length=400)
    whole, cut = MixSampler(mix), MixSampler(mix)
    schedule = [(0, [1, 0], "linear"), (400, [0, 1])]
    for each in (whole, cut):
        each.change_weights(schedule)
    iterator = iter(cut)
    keys = [next(iterator) for _ in range(150)]
    cut.change_weights([1, 1], at=200)
    keys += list(iterator)
    assert keys[:200] == list(whole)[:200]
    assert sum(source for source, _ in keys[200:]) == 100


def test_a_change_holds_in_later_epochs_and_their_states() -> None:
    loader, sampler = loader_of()
    with loader:
        iterator = iter(loader)
        next(iterator)
        sampler.change_weights([(400, [1, 0, 0], "linear"), (LENGTH + 80, [0, 1, 0])])
        numbers_of(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["batches"] == 0
        second = numbers_of(loader)
        third = numbers_of(loader)
    first = [1000 <= each < 2000 for each in second[:80]]
    assert abs(sum(first) - 75) <= 1  # of shares from 0.875 to 1
    assert all(1000 <= each < 2000 for each in second[80:] + third)
    again, _ = loader_of()
    with again:
        again.load_state_dict(state)
        assert numbers_of(again) == second
        assert numbers_of(again) == third


def test_a_change_before_the_first_batch_is_kept_where_a_state_is_loaded() -> None:
    loader, sampler = loader_of()
    with loader:
        iterator = iter(loader)
        head = numbers_of([next(iterator) for _ in range(10)])
        sampler.change_weights([1, 1, 1], at=100)
        state = loader.state_dict()
        iterator.close()
    for changes, wanted in (
        ([([1, 1, 1], 100)], [([1, 1, 1], 100)]),  # as the program has it at each start
        ([([0, 1, 0], 60)], [([0, 1, 0], 60)]),
        ([([0, 1, 0], 200)], [([1, 1, 1], 100), ([0, 1, 0], 200)]),
    ):
        again, sampler = loader_of()
        with again:
            again.load_state_dict(state)
            for weights, at in changes:
                sampler.change_weights(weights, at=at)
            assert head + numbers_of(again) == sequence_of(wanted)
    again, sampler = loader_of()
    with again:
        again.load_state_dict(state)
        sampler.change_weights([0, 1, 0], at=39)
        with pytest.raises(reader.ReaderError, match="drawn the samples before 40"):
            numbers_of(again)


def test_going_back_to_a_state_without_a_change_warns_of_it() -> None:
    loader, sampler = loader_of()
    with loader:
        iterator = iter(loader)
        head = numbers_of([next(iterator) for _ in range(10)])
        state = loader.state_dict()
        sampler.change_weights([1, 1, 1], at=100)
        numbers_of([next(iterator) for _ in range(10)])
        iterator.close()
        loader.load_state_dict(state)
        with pytest.warns(UserWarning, match="weights at sample 100 is not in the state"):
            assert head + numbers_of(loader) == sequence_of([])


def test_a_copy_of_a_sampler_goes_on_by_itself() -> None:
    loader, sampler = loader_of()
    sampler.change_weights([1, 0, 0], at=8)
    for made in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        made.change_weights([0, 0, 1], at=16)
        assert {source for source, _ in list(made)[16:]} == {2}
    assert {source for source, _ in list(sampler)[16:]} == {0}
    assert (
        repr(sampler) == "MixSampler(960, dataset=Mix, num_replicas=1, rank=0, shuffle=False,"
        " even='repeat', drop_last=False, num_samples=960, total_size=960, first_padding=960,"
        " every=40)"
    )
    loader.close()


# ---- by a file ---------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "weights.json"
    found.write_text("[]")
    return found


def write(file: Path, entries: Any) -> None:
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(entries))
    beside.rename(file)


def test_a_file_changes_weights_and_a_resumed_run_repeats_what_was_read(file: Path) -> None:
    entries: list[Any] = [[96, {"web": 1, "code": 0, "books": 3}]]
    for options in ({"num_workers": 0}, {"num_workers": 2}):
        write(file, [])
        shares, states = [], []
        for rank in range(2):
            write(file, [])
            loader, _ = loader_of(rank, 2, changes=file, **options)
            with loader:
                iterator = iter(loader)
                found = numbers_of([next(iterator)])
                write(file, entries)  # they read at sample 80
                found += numbers_of([next(iterator) for _ in range(14)])
                write(file, [*entries, [400, [0, 1, 0]]])
                shares.append(found)
                states.append(json.loads(json.dumps(loader.state_dict())))
                assert numbers_of(iterator)
        rest = []
        for rank in range(3):
            loader, _ = loader_of(rank, 3, changes=file, **options)
            with loader:
                loader.load_state_dict(states[0])
                rest.append(numbers_of(loader))
        wanted = sequence_of([([1, 0, 3], 96), ([0, 1, 0], 400)])
        assert (dealt(shares) + dealt(rest))[:LENGTH] == wanted


def test_a_file_may_have_all_changes_from_the_beginning(file: Path) -> None:
    write(file, [[0, [1, 1, 1], "linear"], [200, {"web": 0, "code": 1, "books": 0}]])
    loader, _ = loader_of(changes=str(file))
    with loader:
        assert numbers_of(loader) == sequence_of(
            [([(0, [1, 1, 1], "linear"), (200, [0, 1, 0])], None)]
        )


def test_a_rank_that_has_drawn_by_other_weights_than_the_file_says_so(file: Path) -> None:
    for entries in ([[90, [1, 1, 1]]], [[20, [1, 1, 1]], [300, [1, 0, 0]]]):
        write(file, [])
        loader, _ = loader_of(changes=file)
        with loader:
            iterator = iter(loader)
            found = numbers_of([next(iterator) for _ in range(25)])  # it has read at 80
            write(file, entries)
            with pytest.raises(
                ConfigError, match=r"has other weights for samples before 120 than those by which"
            ):
                found += numbers_of(iterator)
            assert found == sequence_of([])[:100]


def test_half_a_file_is_read_again_later(file: Path) -> None:
    loader, _ = loader_of(changes=file)
    with loader:
        iterator = iter(loader)
        found = numbers_of([next(iterator) for _ in range(5)])
        file.write_text('[[160, {"web"')
        with pytest.warns(UserWarning, match=r"cannot be read as JSON: .* again at sample 80"):
            found += numbers_of([next(iterator) for _ in range(10)])
        write(file, [[160, [0, 0, 1]]])
        found += numbers_of(iterator)
    assert found == sequence_of([([0, 0, 1], 160)])


def test_a_relative_file_is_read_again_from_another_folder(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    write(file, [])
    iterator = iter(MixSampler(mix_of(), changes=file.name, every=10))
    found = [next(iterator) for _ in range(5)]
    monkeypatch.chdir("/")
    write(file, [[160, [0, 0, 1]]])
    other = MixSampler(mix_of())
    other.change_weights([0, 0, 1], at=160)
    assert found + list(iterator) == list(other)


def test_a_file_that_is_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "changes.json")
    with pytest.raises(ConfigError, match=r"cannot be read as JSON: .*a pipe"):
        MixSampler(mix_of(), changes=tmp_path / "changes.json")


@pytest.mark.parametrize(
    ("text", "kind", "match"),
    [
        ("[[9,", ConfigError, r"changes='.*' cannot be read as JSON: .* \[\] has no changes"),
        ('{"web": 1}', ConfigTypeError, r"must have a list of \[sample, weights\], got \{'web': 1"),
        ("[[9, [1, 1]]]", ConfigError, "json': weights from sample 9 on: mix got 2 weights for 3"),
        ("[[9, [1, 1, 1]], [4, null]]", ConfigError, "json': .* must come in order, got sample 4"),
        ("[5]", ConfigTypeError, r"json': weights\[0\] of a schedule must be \(sample, weights\)"),
    ],
)
def test_a_file_without_changes_of_the_mix_is_refused(
    text: str, kind: Any, match: str, file: Path
) -> None:
    file.write_text(text)
    with pytest.raises(kind, match=match):
        MixSampler(mix_of(), changes=file)


# ---- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "kind", "match"),
    [
        (lambda: MixSampler(range(9)), ConfigTypeError, r"takes a reader\.Mix, got range"),
        (lambda: MixSampler(mix_of("first")), ConfigError, "a mix with stop='first' has as many"),
        (lambda: MixSampler(mix_of("last")), ConfigError, "a mix with stop='last' has as many"),
        (
            lambda: MixSampler(mix_of({"web": "hand_on", "code": "hand_on", "books": "stop"})),
            ConfigError,
            "or by source 'repeat' or 'hand_on'",
        ),
        (lambda: MixSampler(mix_of(), changes=5), ConfigTypeError, "changes must be the path of a"),
        (
            lambda: MixSampler(mix_of(), changes="none.json"),
            ConfigError,
            "'none.json' cannot be re",
        ),
        (lambda: MixSampler(mix_of(), every=0), ConfigError, "every must be an int of 1 or more"),
        (lambda: MixSampler(mix_of(), 2, 2), ConfigError, "rank must be below num_replicas"),
    ],
)
def test_a_sampler_that_cannot_be_is_refused(make: Any, kind: Any, match: str) -> None:
    with pytest.raises(kind, match=match):
        make()


@pytest.mark.parametrize(
    ("weights", "at", "kind", "match"),
    [
        ([1, 1, 1], None, ConfigError, r"weights with at=, or a schedule without it, got at=None"),
        ([(9, [1, 1, 1])], 9, ConfigError, "or a schedule without it, got at=9"),
        ([1, 1, 1], -1, ConfigError, r"weights\[0\]\[0\] must be an int of 0 or more"),
        ([1, 1], 9, ConfigError, "mix got 2 weights for 3 sources"),
        ([0, 0, 0], 9, ConfigError, "weights that are all 0"),
        ([(9, [1, 1, 1]), (4, [1, 1, 1])], None, ConfigError, "come in order, got sample 4"),
        ([(9, [1, 1, 1], "linear")], None, ConfigError, "there are no weights for it to go to"),
    ],
)
def test_a_change_that_cannot_be_is_refused(weights: Any, at: Any, kind: Any, match: str) -> None:
    sampler = MixSampler(mix_of())
    with pytest.raises(kind, match=match):
        sampler.change_weights(weights, at)
    assert sampler.changes == []


def test_a_change_keeps_what_each_source_does_at_its_end() -> None:
    stop = {"web": "hand_on", "code": "repeat", "books": "hand_on"}
    mix = Mix(SOURCES, stop=stop, length=200)
    sampler = MixSampler(mix)
    sampler.change_weights([3, 1, 1], at=10)
    keys = list(sampler)
    assert len(keys) == 200
    counts = [sum(1 for source, _ in keys if source == number) for number in range(3)]
    assert counts == [50, 119, 31]
    assert counts == [each["samples"] for each in sampler.given(0, 200).values()]


def test_a_key_of_another_mix_is_refused() -> None:
    mix = mix_of()
    assert mix[1, 20] in SOURCES["code"]
    assert mix.origin((1, 20)).source == "code"
    for key in ((3, 0), (-1, 0), (0, -1)):
        with pytest.raises(reader.SampleIndexError, match=r"got the key .* of a mix of 3 sources"):
            mix[key]


def test_a_change_after_which_all_would_wait_for_ever_is_refused() -> None:
    sampler = MixSampler(mix_of("all"))
    with pytest.raises(ConfigError, match=r"waits for the source for 'web', and .* have no turn"):
        sampler.change_weights([0, 1, 1], at=20)
    assert sampler.changes == []
    with pytest.raises(ConfigError, match="for the source for 'web', and 50 of its 50 sam"):
        sampler.change_weights([0, 1, 1], at=100)  # in the next epoch
    assert sampler.changes == []
    assert sorted(sampler) == sorted(
        (number, k) for number, each in enumerate(SOURCES.values()) for k in range(len(each))
    )


@pytest.mark.parametrize(
    "changes",
    [
        None,
        5,
        [5],
        [[9, [1, 1], [1, 1], 1]],
        [[9, [1, 1, 1], None, 1]],
        [[9, [1, 1, 1], [0, 0, 0], 1]],
        [[9, [1, 1, 1], [1, 1, -1], 1]],
        [[9, [1, 1, 1], [1, 1, 1], 0]],
        [[-9, [1, 1, 1], [1, 1, 1], 1]],
        [[9, [1, 1, 1], [1, 1, 1], 1]] * 2,
    ],
)
def test_changes_of_another_mix_in_a_state_are_refused(changes: Any) -> None:
    loader, sampler = loader_of()
    with loader:
        iterator = iter(loader)
        next(iterator)
        begun, state = loader.state_dict(), sampler.state_dict()
        iterator.close()
    begun["order"]["changes"] = changes
    with pytest.raises(StateError, match="changes in the state must be those of a mix of 3 sour"):
        loader.load_state_dict(begun)
    with pytest.raises(StateError, match="changes in the state must be those of a mix of 3 sour"):
        sampler.load_state_dict({**state, "changes": changes})


def test_a_state_with_changes_is_refused_by_a_sampler_without() -> None:
    loader, _ = loader_of()
    with loader:
        iterator = iter(loader)
        next(iterator)
        begun = loader.state_dict()
        iterator.close()
    begun["fit"]["sampler"] = "DistributedSampler"
    plain = reader.DistributedSampler(mix_of(), 1, 0, shuffle=False)
    with (
        DataLoader(mix_of(), batch_size=SIZE, sampler=plain) as other,
        pytest.raises(StateError, match="DistributedSampler here has no changes"),
    ):
        other.load_state_dict(begun)
