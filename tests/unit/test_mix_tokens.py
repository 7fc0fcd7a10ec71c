"""`reader.Mix` with shares of tokens: how exact they are, where lengths come from, bad input."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reader
from reader import ConfigError, ConfigTypeError, Mix, TokenWindows
from tests.streams import Items

LENGTHS = st.lists(st.integers(1, 4096), min_size=1, max_size=5)


def tokens_of(mixed: Mix, lengths: list[Any]) -> np.ndarray[Any, Any]:
    """Return what each source has given, in tokens, after each sample; by a plain count."""
    rows = [[0] * len(lengths)]
    for place in range(len(mixed)):
        source, position, _ = mixed.origin(place)
        row = list(rows[-1])
        own = lengths[int(source)]
        row[int(source)] += int(own if isinstance(own, int) else own[position])
        rows.append(row)
    return np.array(rows)


# ---- how exact ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data(), LENGTHS)
def test_tokens_are_within_one_sample_of_their_share_of_the_mean(
    data: st.DataObject, lengths: list[int]
) -> None:
    count = len(lengths)
    weights = data.draw(st.lists(st.integers(1, 20), min_size=count, max_size=count))
    options: dict[str, Any] = {"unit": "tokens", "lengths": lengths}
    mixed = Mix([range(50)] * count, weights, stop="never", length=150, **options)
    cycle = mixed.entries[0].counts
    in_a_cycle = [
        given_samples * length for given_samples, length in zip(cycle, lengths, strict=True)
    ]
    mean = Fraction(sum(in_a_cycle), sum(cycle))
    shares = [Fraction(each, sum(in_a_cycle)) for each in in_a_cycle]
    for share, weight in zip(shares, weights, strict=True):
        # a cycle of up to 65,536 samples has each share of samples to a 65,536th
        assert abs(share - Fraction(weight, sum(weights))) < Fraction(max(lengths) * count, 65_536)
    for n, given_tokens in enumerate(tokens_of(mixed, lengths)):
        for source in range(count):
            tokens = int(given_tokens[source])
            assert abs(tokens - shares[source] * mean * n) < lengths[source]
            if count == 2:
                assert abs(tokens - shares[source] * int(given_tokens.sum())) < max(lengths)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["first", "last", "all", "never"]))
def test_shares_of_tokens_are_other_shares_of_samples_with_each_stop(
    data: st.DataObject, stop: Any
) -> None:
    sources = data.draw(st.integers(1, 4))
    lengths = data.draw(st.lists(st.integers(1, 64), min_size=sources, max_size=sources))
    counts = data.draw(st.lists(st.integers(1, 40), min_size=sources, max_size=sources))
    shares = st.lists(st.integers(1, 9), min_size=sources, max_size=sources)
    samples = [
        (start, data.draw(shares), *kind) for start, kind in ((0, ()), (9, ("linear",)), (30, ()))
    ]
    tokens = [
        (start, [own * length for own, length in zip(each, lengths, strict=True)], *kind)
        for start, each, *kind in samples
    ]
    options: dict[str, Any] = {"stop": stop, "length": 120 if stop == "never" else None}
    datasets = [range(count) for count in counts]
    by_tokens = Mix(datasets, tokens, unit="tokens", lengths=lengths, **options)
    by_samples = Mix(datasets, samples, **options)
    assert [by_tokens.origin(k) for k in range(len(by_tokens))] == [
        by_samples.origin(k) for k in range(len(by_samples))
    ]


@pytest.mark.parametrize("stop", ["last", "all", "never"])
def test_tokens_of_lengths_that_vary_have_their_shares_over_whole_passes(stop: Any) -> None:
    rng = np.random.default_rng(4)
    # 60 samples of one source for 120 of the other, of twice the tokens in all
    short, long = rng.integers(1, 50, 60), rng.integers(1, 50, 120)
    long[-1] += 2 * short.sum() - long.sum() + 5000
    short[-1] += 2500
    options: dict[str, Any] = {"length": 180} if stop == "never" else {}
    for seed in (None, 3):
        mixed = Mix(
            [range(60), range(120)],
            [1, 2],
            unit="tokens",
            lengths=[short, long],
            seed=seed,
            stop=stop,
            **options,
        )
        total = mixed.given(180)
        assert [each["passes"] for each in total.values()] == [1, 1]
        assert [each["tokens"] for each in total.values()] == [short.sum(), 2 * short.sum()]


@pytest.mark.parametrize("seed", [None, 5])
def test_given_counts_samples_tokens_and_passes_as_a_plain_count_does(seed: int | None) -> None:
    rng = np.random.default_rng(1)
    lengths: list[Any] = [rng.integers(1, 100, 30), 40, rng.integers(0, 9, 20)]
    sources = {"a": range(30), "b": range(25), "c": range(20)}
    mixed = Mix(
        sources,
        [(0, [1, 1, 0], "linear"), (90, [1, 2, 3]), (150, [3, 2, 1])],
        stop="never",
        length=300,
        unit="tokens",
        lengths=dict(zip(sources, lengths, strict=True)),
        seed=seed,
    )
    for epoch in (0, 2):
        mixed.set_epoch(epoch)
        samples: Counter[Any] = Counter()
        tokens: Counter[Any] = Counter()
        for place in range(301):
            found = mixed.given(place)
            for name in sources:
                assert found[name]["samples"] == samples[name]
                assert found[name]["tokens"] == tokens[name]
                assert found[name]["passes"] == samples[name] / len(sources[name])
            if place < 300:
                name, position, _ = mixed.origin(place)
                own = lengths["abc".index(str(name))]
                samples[name] += 1
                tokens[name] += int(own if isinstance(own, int) else own[position])
    with pytest.raises(ConfigError, match=r"count must be an int in \[0, 300\], got 301"):
        mixed.given(301)


def test_a_linear_stretch_of_tokens_has_its_shares_at_both_ends() -> None:
    length = 100_000
    mixed = Mix(
        [range(1000), range(1000)],
        [(0, [0.9, 0.1], "linear"), (length, [0.2, 0.8])],
        stop="never",
        length=2 * length,
        unit="tokens",
        lengths=[512, 2048],
    )
    for place, share in ((0, 0.9), (length, 0.2)):
        before, after = (
            [each["tokens"] for each in mixed.given(at).values()] for at in (place, place + 1000)
        )
        grown = [late - early for early, late in zip(before, after, strict=True)]
        assert abs(grown[0] / sum(grown) - share) < 0.02


# ---- where lengths come from -------------------------------------------------------------------


def test_windows_of_tokens_say_their_length_and_others_their_lengths(tmp_path: Path) -> None:
    np.arange(400, dtype=np.uint16).tofile(tmp_path / "tokens.bin")
    windows = TokenWindows(tmp_path / "tokens.bin", 20)
    documents = reader.TensorDataset([list(range(10))])
    documents.lengths = np.full(10, 40)  # type: ignore[attr-defined]
    mixed = Mix({"windows": windows, "documents": documents}, unit="tokens", stop="never", length=9)
    assert [each["tokens"] for each in mixed.given(9).values()] == [120, 120]
    same = Mix([windows, range(10)], unit="tokens", lengths=[None, 40], stop="never", length=9)
    assert [same.origin(k).source for k in range(9)] == [
        ["windows", "documents"].index(str(mixed.origin(k).source)) for k in range(9)
    ]


class Counted:
    """Has a `length` that is how many samples there are, as datasets of many projects have."""

    length = 10

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


# ---- bad input ---------------------------------------------------------------------------------

TWO = {"web": range(10), "code": range(20)}


@pytest.mark.parametrize(
    ("datasets", "lengths", "kind", "text"),
    [
        (TWO, None, ConfigError, r"the source for 'web' \(range\) has no lengths\. Pass lengths="),
        (TWO, {"web": 5}, ConfigError, "the source for 'code' .* has no lengths"),
        ([Counted()], None, ConfigError, r"at position 0 \(Counted\) has no lengths"),
        (
            TWO,
            {"web": 5, "books": 5},
            ConfigError,
            "unknown sources 'books'. The sources are 'web'",
        ),
        ([range(3)], {"web": 5}, ConfigError, "The sources have no names: pass a list"),
        (TWO, [5], ConfigTypeError, r"an entry for each of 2 sources, .* got \[5\]"),
        (TWO, 5, ConfigTypeError, r"an entry for each of 2 sources, .* got 5 \(int\)"),
        (TWO, {"web": 0, "code": 5}, ConfigError, "for 'web' has 0 tokens in 10 samples"),
        (TWO, {"web": [0] * 10, "code": 5}, ConfigError, "for 'web' has 0 tokens in 10 samples"),
        (TWO, {"web": 5, "code": [5] * 10}, ConfigError, "'code' .* of its 20 samples, got 10"),
        (TWO, {"web": -5, "code": 5}, ConfigError, "for 'web' must not be negative, got -5"),
        (TWO, {"web": [5] * 9 + [-1], "code": 5}, ConfigError, "not be negative, got -1"),
        (
            TWO,
            {"web": np.full(10, (1 << 63) + 1, "u8"), "code": 5},
            ConfigError,
            r"for 'web' sum to 9\.22e\+19 tokens",
        ),
        (TWO, {"web": [1 << 62] * 10, "code": 5}, ConfigError, r"for 'web' sum to 4\.61e\+19"),
        (TWO, {"web": 5.5, "code": 5}, ConfigTypeError, "must be a whole number, .* got 5.5"),
        (TWO, {"web": True, "code": 5}, ConfigTypeError, "must be a whole number, .* got True"),
        (TWO, {"web": "5", "code": 5}, ConfigTypeError, "must be a whole number, .* got '5'"),
        (TWO, {"web": [[5], [5, 6]], "code": 5}, ConfigTypeError, "or an array of them by sample"),
        ({"web": []}, {"web": []}, ConfigTypeError, "or an array of them by sample"),
        ({"web": []}, {"web": np.array([], int)}, ConfigError, "has 0 tokens in 0 samples"),
    ],
)
def test_lengths_that_cannot_be_are_refused(
    datasets: Any, lengths: Any, kind: Any, text: str
) -> None:
    with pytest.raises(kind, match=text):
        Mix(datasets, unit="tokens", lengths=lengths, stop="all")


def test_streams_are_mixed_by_samples_alone() -> None:
    for options in ({"unit": "tokens"}, {"lengths": [1]}, {"unit": "batches"}):
        with pytest.raises(ConfigError, match=r"are for map-style datasets: the tokens of a strea"):
            reader.mix([Items("ab")], **options)  # type: ignore[arg-type]
    mixed = reader.mix(TWO, unit="tokens", lengths={"web": 2, "code": 1})
    assert isinstance(mixed, Mix)
    assert mixed.given(9)["web"] == {"samples": 3, "tokens": 6, "passes": 0.3}
