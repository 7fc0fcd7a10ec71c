"""Shared DataFrames and Series refuse to be changed, in each way that pandas has."""

from __future__ import annotations

import contextlib
import copy
import pickle
from typing import Any

import numpy as np
import pytest

from reader import share

pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")

IS_3 = int(pandas.__version__.split(".")[0]) >= 3


def frame() -> Any:
    made = pandas.DataFrame(
        {
            "number": np.arange(3),
            "float": np.arange(3) / 2,
            "text": ["x", "y", "z"],
            "gaps": ["x", None, "z"],
            "time": pandas.date_range("2020", periods=3),
            "kind": pandas.Categorical(["u", "v", "u"]),
            "masked": pandas.array([1, None, 3], "Int64"),
        },
        index=pandas.Index(list("abc"), name="key"),
    )
    made.attrs["made by"] = ["me"]
    return made


def state(table: Any) -> Any:
    plain = (pandas.DataFrame if table.ndim > 1 else pandas.Series)(table).copy()
    names = [axis.names for axis in table.axes]
    flags = table.flags.allows_duplicate_labels
    return pickle.dumps([plain.to_dict(), names, dict(table.attrs), flags, table.shape])


CHANGES = [
    "t.loc['a', 'text'] = 'new'",
    "t.iloc[0, 2] = 'new'",
    "t.iloc[0, 0] = 7",
    "t.loc['a', 'number'] = 7",
    "t.loc[t.number > 0, 'text'] = 'new'",
    "t.loc['new'] = t.loc['a']",
    "t.loc[:, 'new'] = 1",
    "t.loc(axis=0)['a'] = 1",
    "t.at['a', 'text'] = 'new'",
    "t.iat[0, 2] = 'new'",
    "t[t == 'x'] = 'new'",
    "t.number = 5",
    "t.anything = 5",
    "del t.number",
    "t.fillna({'gaps': 'new'}, inplace=True)",
    "t.fillna({'masked': 5}, inplace=True)",
    "t.ffill(inplace=True)",
    "t.replace('x', 'new', inplace=True)",
    "t.mask(t.number > 0, inplace=True)",
    "t.eval('new = number + 1', inplace=True)",
    "t.reset_index(inplace=True)",
    "t.drop_duplicates(None, inplace=True)",
    "t += 1",
    "t.index.name = 'new'",
    "t.columns.name = 'new'",
    "t.index.set_names('new', inplace=True)",
    "t.attrs['new'] = 1",
    "t.attrs.clear()",
    "t.attrs = {}",
    "t.flags.allows_duplicate_labels = False",
    "t.index = [1, 2, 3]",
    "t._mgr = None",
]
SERIES_CHANGES = [
    "t.loc['a'] = 'new'",
    "t.loc['new'] = 'new'",
    "t.iloc[0] = 'new'",
    "t.name = 'new'",
    "t.rename('new', inplace=True)",
    "t.replace('x', 'new', inplace=True)",
    "t.where(t == 'x', 'new', inplace=True)",
    "t.index.name = 'new'",
    "t += 'new'",
]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:The inplace keyword")
@pytest.mark.parametrize("change", CHANGES + SERIES_CHANGES)
def test_a_shared_table_refuses_each_change(change: str) -> None:
    shared = share(frame() if change in CHANGES else frame()["gaps"])
    before = state(shared)
    kind = type(shared).__name__.removeprefix("Shared")
    with pytest.raises(TypeError, match=rf"a shared {kind} cannot be changed: .* reader.share"):
        exec(change, {"t": shared})
    assert state(shared) == before


@pytest.mark.parametrize("name", frame().columns)
def test_the_arrays_of_a_shared_table_are_read_only(name: str) -> None:
    shared = share(frame())
    before = state(shared)
    series = share(frame()[name])
    with pytest.raises((TypeError, ValueError), match=r"read-only|cannot be changed"):
        series.array[0] = series.array[1]
    with contextlib.suppress(TypeError, ValueError):  # that of a column may be a view
        shared[name].array[0] = shared[name].array[1]
    assert state(shared) == before
    assert series.iloc[0] == frame()[name].iloc[0]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_results_computed_from_a_shared_table_can_be_changed() -> None:
    shared, series = share(frame()), share(frame()["number"])
    before = state(shared), state(series)
    computed = [
        shared[["number", "float"]] + 1,
        shared.T,
        shared[shared.number > 0],
        shared.copy(),
        copy.deepcopy(shared),
        pickle.loads(pickle.dumps(shared)),
        shared.fillna({"gaps": "new"}),
        shared.fillna({"gaps": "new"}, inplace=False),
        shared.rename(columns={"number": "n"}),
        shared.eval("new = number + 1"),
        shared.isna(),
        pandas.concat([shared, shared]),
        shared.set_flags(allows_duplicate_labels=True),
        pickle.loads(pickle.dumps(shared["text"])).to_frame(),
        shared["text"],
        shared[:2],
        series + 1,
        series == 1,
        series.map(str),
        share(frame()["text"]).str.upper(),
        series.rename("new"),
    ]
    for table in computed:
        assert type(table) in (pandas.DataFrame, pandas.Series)
        table.attrs["new"] = 1
        if IS_3:  # before, such a table may have the very index, or numbers, that it was made of
            table.index.name = "new"
            table.index.set_names("new", inplace=True)
            first = (0,) * table.ndim
            table.iloc[first] = table.iloc[first]
            if table.index.is_unique:
                table.loc["more"] = table.iloc[0]
    assert (state(shared), state(series)) == before


def test_a_fixed_index_is_that_of_the_table() -> None:
    made = frame()
    shared = share(made)
    assert type(shared.index) is type(made.index)
    assert shared.index.equals(made.index)
    assert shared.index.name == "key"
    assert shared.axes[1].tolist() == list(made.columns)
    assert shared.flags == made.flags
    assert copy.deepcopy(shared.attrs) == made.attrs
    assert type(copy.deepcopy(shared.attrs)) is dict
    assert shared.index.set_names("other").name == "other"
    levels = share(frame().set_index(["text", "number"]))
    with pytest.raises(TypeError, match="cannot be changed"):
        levels.index.set_names(["a", "b"], inplace=True)
    assert levels.index.names == ["text", "number"]


def test_times_lie_in_the_shared_memory() -> None:
    count = 100_000
    times = pandas.date_range("2020", periods=count, freq="min")
    table = pandas.DataFrame({"a": times, "b": times - times[0], "c": times.tz_localize("UTC")})
    shared = share(table)
    for name in table:
        array = np.asarray(shared[name].array._ndarray)
        assert not array.flags.writeable
        assert any(np.may_share_memory(array, part) for part in shared._memory.parts)
    assert pandas.DataFrame(shared).equals(table)
