"""Attributes of a loader that are set, and a feed list that is none, in dynamic mode."""

from __future__ import annotations

from typing import Any

import pytest

from reader.compat.paddle import DataLoader


def test_attributes_of_the_batch_sampler_stay_when_others_are_set() -> None:
    for workers in (0, 2):
        loader: Any = DataLoader(list(range(6)), batch_size=1, num_workers=workers)
        loader.batch_sampler.batch_size = 4
        batch_sampler = loader.batch_sampler
        loader.dataset = list(range(10, 16))
        assert [batch.tolist() for batch in loader] == [[10, 11, 12, 13], [14, 15]]
        loader.dataset = list(range(20, 28))  # in the order of the same batch sampler, as Paddle's
        assert [batch.tolist() for batch in loader] == [[20, 21, 22, 23], [24, 25]]
        loader.collate_fn = None
        assert loader.batch_sampler is batch_sampler
        loader.drop_last = True
        assert [batch.tolist() for batch in loader] == [[20, 21, 22, 23], [24, 25, 26, 27]]


@pytest.mark.parametrize(
    ("feed_list", "text"),
    [
        (4, "The second argument is feed_list, as in Paddle: pass batch_size=4 by keyword"),
        ("x", "Pass .variable. for a single one"),
        ([4], "got 4 .int. at position 0, which has no name"),
        (object(), "must be a list or tuple of variables"),
    ],
)
def test_invalid_feed_lists_are_refused_in_dynamic_mode_too(feed_list: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        DataLoader(list(range(6)), feed_list)
    assert len(list(DataLoader(list(range(6)), [], batch_size=3))) == 2


def test_an_attribute_that_is_set_calls_no_del_of_a_subclass() -> None:
    ended: list[int] = []

    class Closing(DataLoader[Any]):
        def __del__(self) -> None:
            ended.append(self.num_workers)
            self.close()

    loader: Any = Closing(list(range(4)), batch_size=2, num_workers=2, persistent_workers=True)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    loader.timeout = 30
    assert ended == []
    assert next(batches).tolist() == [2, 3]
    del loader, batches
    assert ended == [2]
