"""Keyed seeds are pure functions; global random state changes only on request."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader.random.seeds import (
    CapturedState,
    batch_seed,
    draws_rng,
    fresh_seed,
    order_key,
    order_rng,
    sample_rng,
    seed_known_libraries,
)

KEYS = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


@pytest.fixture(autouse=True)
def _own_random_state() -> Iterator[None]:
    put_back = CapturedState().put_back
    yield
    put_back()


def first_draw(rng: np.random.Generator) -> int:
    return int(rng.integers(0, 2**63))


@given(key=KEYS, other=KEYS)
def test_batch_seed_depends_on_each_part_of_its_key(key: Any, other: Any) -> None:
    assert batch_seed(*key) == batch_seed(*key)
    assert 0 <= batch_seed(*key) < 2**63  # so that a tensor of int64 can hold it
    assert (batch_seed(*key) == batch_seed(*other)) == (key == other)


@given(key=KEYS, other=KEYS)
def test_order_key_and_draws_depend_on_each_part_of_their_key(key: Any, other: Any) -> None:
    assert 0 <= order_key(*key[:2]) < 2**128
    assert (order_key(*key[:2]) == order_key(*other[:2])) == (key[:2] == other[:2])
    assert (first_draw(draws_rng(*key)) == first_draw(draws_rng(*other))) == (key == other)


@given(key=KEYS, other=KEYS)
def test_sample_rng_depends_on_each_part_of_its_key(key: Any, other: Any) -> None:
    assert first_draw(sample_rng(*key)) == first_draw(sample_rng(*key))
    same = first_draw(sample_rng(*key)) == first_draw(sample_rng(*other))
    assert same == (key == other)


def test_no_two_small_keys_share_a_stream() -> None:
    keys = [(s, e, n) for s in range(12) for e in range(12) for n in range(12)]
    keys += [(s << 32, e, n) for s, e, n in keys if s]
    assert len({batch_seed(*key) for key in keys}) == len(keys)


def test_purposes_do_not_share_a_stream() -> None:
    draws = {
        first_draw(sample_rng(3, 4, 0)),
        first_draw(order_rng(3, 4)),
        first_draw(np.random.default_rng(batch_seed(3, 4, 0))),
        first_draw(draws_rng(3, 4, 0)),
        order_key(3, 4) & 2**64 - 1,
        order_key(3, 4) >> 64,
    }
    assert len(draws) == 6


def test_streams_stay_what_they_were_in_earlier_versions() -> None:
    assert batch_seed(1, 2, 3) == 6894895521701597925
    words = sample_rng(1, 2, 3).bit_generator.random_raw(2)
    assert words.tolist() == GOLDEN_WORDS


@given(key=KEYS, index=st.integers(-(2**70), 2**70))
def test_sample_rng_is_what_numpy_seeds(key: Any, index: int) -> None:
    words = [word for number in (*key[:2], index) for word in (number, number >> 32)]
    sequence = np.random.SeedSequence([3, *(word & 2**32 - 1 for word in words)])
    wanted = np.random.Generator(np.random.Philox(sequence))
    rng = sample_rng(*key[:2], index)
    assert repr(rng.bit_generator.state) == repr(wanted.bit_generator.state)
    draws = wanted.integers(0, 2**63, 9).tolist()
    for each in (copy.deepcopy(rng), pickle.loads(pickle.dumps(rng)), rng):
        assert each.integers(0, 2**63, 9).tolist() == draws


def test_sample_rng_has_the_seed_sequence_of_its_key() -> None:
    sequence = np.random.SeedSequence([3, 1, 0, 2, 0, 5, 0])
    rng = sample_rng(1, 2, 5)
    seed: Any = rng.bit_generator.seed_seq
    for count in (2, 3):
        wanted = [
            first_draw(np.random.Generator(np.random.Philox(s))) for s in sequence.spawn(count)
        ]
        assert [first_draw(each) for each in rng.spawn(count)] == wanted
    assert seed.entropy == sequence.entropy
    assert seed.generate_state(5).tolist() == sequence.generate_state(5).tolist()
    assert pickle.loads(pickle.dumps(seed)).state == sequence.state
    assert copy.copy(sample_rng(1, 2, 5).bit_generator.seed_seq).n_children_spawned == 0


# What the first version drew; numpy promises these streams for good.
GOLDEN_WORDS = [11798965383209380897, 17460620324616128181]


def test_sample_rng_takes_any_index() -> None:
    draw = first_draw(sample_rng(1, 0, 5))
    assert draw == first_draw(sample_rng(1, 0, np.int16(5)))
    assert draw != first_draw(sample_rng(1, 0, -5))
    with pytest.raises(TypeError):
        sample_rng(1, 0, 5.0)  # type: ignore[arg-type]


def test_keyed_functions_touch_no_global_state() -> None:
    before = repr((random.getstate(), np.random.get_state(legacy=False)))
    batch_seed(1, 2, 3)
    sample_rng(1, 2, 3).random()
    order_rng(None, 0).random()
    fresh_seed()
    assert repr((random.getstate(), np.random.get_state(legacy=False))) == before


def test_fresh_seeds_and_orders_differ() -> None:
    assert len({fresh_seed() for _ in range(100)}) == 100
    assert all(0 <= fresh_seed() < 2**64 for _ in range(100))
    assert first_draw(order_rng(None, 0)) != first_draw(order_rng(None, 0))


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1])
def test_seeding_repeats_random_and_numpy(seed: int) -> None:
    def draw() -> tuple[float, float, float]:
        seed_known_libraries(seed)
        return random.random(), np.random.random(), np.random.standard_normal()

    first = draw()
    np.random.standard_normal()  # leaves the second of a pair behind, which seeding must forget
    assert draw() == first


def test_all_64_bits_of_a_seed_count() -> None:
    draws = set()
    for seed in (5, 5 + 2**32, 5 + 2**63):
        seed_known_libraries(seed)
        draws.add((random.random(), np.random.random()))
    assert len({d[0] for d in draws}) == len({d[1] for d in draws}) == 3


def test_random_and_numpy_draw_other_numbers() -> None:
    for seed in (2**32, 2**40 + 7, 2**63 - 1):
        seed_known_libraries(seed)
        assert not {random.random() for _ in range(9)} & set(np.random.random(9).tolist())


class FakeGenerator:
    def __init__(self) -> None:
        self.state = 0

    def manual_seed(self, seed: int) -> None:
        self.state = seed

    def get_state(self) -> int:
        return self.state

    def set_state(self, state: int) -> None:
        self.state = state


@pytest.fixture
def frameworks(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeGenerator, FakeGenerator]:
    torch, paddle = FakeGenerator(), FakeGenerator()
    core = SimpleNamespace(default_cpu_generator=lambda: paddle)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(default_generator=torch))
    monkeypatch.setitem(
        sys.modules, "paddle", SimpleNamespace(framework=SimpleNamespace(core=core))
    )
    return torch, paddle


def test_seeding_reaches_loaded_frameworks(
    frameworks: tuple[FakeGenerator, FakeGenerator],
) -> None:
    seed_known_libraries(77)
    assert [generator.state for generator in frameworks] == [77, 77]


def test_state_of_loaded_frameworks_is_preserved(
    frameworks: tuple[FakeGenerator, FakeGenerator],
) -> None:
    frameworks[0].state, frameworks[1].state = 1, 2
    put_back = CapturedState().put_back
    seed_known_libraries(77)
    put_back()
    assert [generator.state for generator in frameworks] == [1, 2]


def test_half_imported_frameworks_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "paddle", SimpleNamespace(framework=SimpleNamespace()))
    seed_known_libraries(1)
    monkeypatch.setitem(sys.modules, "paddle", SimpleNamespace())
    seed_known_libraries(1)
    monkeypatch.setitem(sys.modules, "paddle", None)
    CapturedState().put_back()
    seed_known_libraries(1)


def test_state_is_restored_whatever_was_drawn_meanwhile() -> None:
    random.seed(3)
    np.random.seed(3)
    np.random.standard_normal()
    before = repr((random.getstate(), np.random.get_state(legacy=False)))
    put_back = CapturedState().put_back
    seed_known_libraries(9)
    np.random.random(1000)
    random.random()
    put_back()
    assert repr((random.getstate(), np.random.get_state(legacy=False))) == before


def whole_state() -> bytes:
    return pickle.dumps((random.getstate(), np.random.get_state(legacy=False)))


@given(steps=st.lists(st.sampled_from(["words", "deviate", "seed", "capture"]), max_size=8))
def test_state_is_restored_with_and_without_a_spare_deviate(steps: list[str]) -> None:
    for step in [*steps, "capture"]:
        if step == "words":
            np.random.random(3)
        elif step == "deviate":
            np.random.randn()
        elif step == "seed":
            np.random.seed(len(steps))
        else:
            before = whole_state()
            captured = CapturedState()
            seed_known_libraries(9)
            np.random.randn()
            assert captured != CapturedState()
            captured.put_back()
            assert whole_state() == before
            assert captured == CapturedState()


@pytest.mark.skipif(not hasattr(np.random, "set_bit_generator"), reason="needs NumPy 1.24")
@pytest.mark.parametrize("kind", ["PCG64", "MT19937"])
def test_state_of_another_bit_generator_is_restored(kind: str) -> None:
    CapturedState()
    own = np.random.get_bit_generator()  # type: ignore[attr-defined]
    np.random.set_bit_generator(getattr(np.random, kind)(5))  # type: ignore[attr-defined]
    try:
        for draw in (np.random.random, np.random.randn):
            before = whole_state()
            captured = CapturedState()
            seed_known_libraries(9)
            draw()
            captured.put_back()
            assert whole_state() == before
    finally:
        np.random.set_bit_generator(own)  # type: ignore[attr-defined]


REAL = """
import sys
{imports}
from reader.random.seeds import CapturedState, seed_known_libraries

def draw():
    return {draw}

seed_known_libraries(2**64 - 1)
first = draw()
seed_known_libraries(2**64 - 1)
assert draw() == first
before = draw()
seed_known_libraries(2**64 - 1)
draw()
put_back = CapturedState().put_back
seed_known_libraries(5)
draw()
put_back()
assert draw() == before
"""


@pytest.mark.parametrize(
    ("framework", "imports", "draw"),
    [
        ("torch", "import torch", "torch.rand(3).tolist()"),
        ("paddle", "import paddle", "paddle.rand([3]).tolist()"),
        (
            "numpy",
            "import numpy as np; np.random.set_bit_generator(np.random.Philox(1))",
            "(np.random.standard_normal(), np.random.random())",
        ),
    ],
)
def test_real_generators_are_seeded_and_restored(framework: str, imports: str, draw: str) -> None:
    _skip_without(framework)
    root = Path(__file__).parents[2]
    code = REAL.format(imports=imports, draw=draw)
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=root)


def _skip_without(module: str) -> None:
    import importlib.util

    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
