"""Batches that paddle.io 3.3.1 loses, mixes up or reads as something else, and ours.

Imports the harness and pytest; the stories run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import HANG_S, Story, Verdict, demonstrated_by, proved_by

pytestmark = [pytest.mark.peer, pytest.mark.nightly]

STRINGS = Story(
    """
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    texts = ["one", "two", "three", "four", "five", "six"]
    tell(list(DataLoader(texts)))
    """
)


@demonstrated_by(STRINGS)
def test_paddle_yields_no_batch_of_strings(verdict: Verdict) -> None:
    assert verdict.result == []


@proved_by(STRINGS)
def test_batches_of_strings_come_whole(verdict: Verdict) -> None:
    assert verdict.result == [["one"], ["two"], ["three"], ["four"], ["five"], ["six"]]


ONE_WITHOUT_TENSOR = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    def collate(samples):
        return {"x": "none here" if samples[0] == 2 else np.array(samples)}

    tell([type(batch["x"]).__name__ for batch in DataLoader(range(6), collate_fn=collate)])
    """
)


@demonstrated_by(ONE_WITHOUT_TENSOR)
def test_paddle_ends_the_epoch_at_a_batch_without_tensors(verdict: Verdict) -> None:
    assert verdict.result == ["Tensor", "Tensor"]


@proved_by(ONE_WITHOUT_TENSOR)
def test_batch_without_tensors_comes_in_its_place(verdict: Verdict) -> None:
    assert verdict.result == ["Tensor", "Tensor", "str", "Tensor", "Tensor", "Tensor"]


NONE_OF_COLLATE = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    def collate(samples):
        return None if samples[0] == 2 else np.array(samples)

    found = []
    batches = iter(DataLoader(range(5), collate_fn=collate))
    while True:
        try:
            batch = next(batches)
            found.append(None if batch is None else int(np.asarray(batch)[0]))
        except StopIteration:
            break
        except Exception as error:
            found.append(str(error))
    tell(found)
    """
)


@demonstrated_by(NONE_OF_COLLATE)
def test_paddle_ends_the_epoch_when_collate_fn_returns_none(verdict: Verdict) -> None:
    assert verdict.result == [0, 1]


@proved_by(NONE_OF_COLLATE)
def test_none_of_collate_fn_ends_no_epoch(verdict: Verdict) -> None:
    assert verdict.result == [0, 1, None, 3, 4]


FED_BY_POSITION = Story(
    """
    import numpy as np
    import paddle
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    paddle.enable_static()
    main = paddle.static.Program()
    with paddle.static.program_guard(main):
        x = paddle.static.data("x", [None, 2], "float32")
        y = paddle.static.data("y", [None, 2], "float32")
        difference = x - y
    samples = [{"y": np.full(2, 1, "float32"), "x": np.full(2, 5, "float32")}] * 4
    loader = DataLoader(samples, feed_list=[x, y], batch_size=2, return_list=False)
    exe = paddle.static.Executor(paddle.CPUPlace())
    tell([exe.run(main, feed=feed, fetch_list=[difference])[0].tolist() for feed in loader])
    """
)


@demonstrated_by(FED_BY_POSITION)
def test_paddle_feeds_dict_samples_by_position_and_swaps_them(verdict: Verdict) -> None:
    assert verdict.result == [[[-4, -4], [-4, -4]]] * 2


@proved_by(FED_BY_POSITION)
def test_dict_samples_are_fed_by_name(verdict: Verdict) -> None:
    assert verdict.result == [[[4, 4], [4, 4]]] * 2


FIELDS_THAT_VANISH = Story(
    """
    import numpy as np
    import paddle
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    paddle.enable_static()
    x = paddle.static.data("x", [None, 2], "float32")
    loader = DataLoader(
        [(np.zeros(2, "float32"), "a name")] * 2, feed_list=[x], batch_size=2, return_list=False
    )
    try:
        tell([sorted(feed[0]) for feed in loader])
    except Exception as error:
        tell(str(error))
    """
)


@demonstrated_by(FIELDS_THAT_VANISH)
def test_paddle_drops_fields_that_are_no_tensors_from_a_feed(verdict: Verdict) -> None:
    assert verdict.result == [["x"]]


@proved_by(FIELDS_THAT_VANISH)
def test_field_that_is_no_tensor_in_a_feed_is_an_error_that_names_both_sides(
    verdict: Verdict,
) -> None:
    assert "x" in verdict.result
    assert "[1]" in verdict.result


LOST_PLACES = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import numbers, tell

    dataset = [np.float32([index]) for index in range(6)]
    steps = list(DataLoader(dataset, places=["cpu", "cpu"]))
    tell([[numbers(batch)[0] for batch in step] if len(step) > 1 else numbers(step)
          for step in steps])
    """
)


@demonstrated_by(LOST_PLACES)
def test_paddle_throws_away_every_batch_but_the_first_places(verdict: Verdict) -> None:
    assert verdict.result == [[0], [2], [4]]


@proved_by(LOST_PLACES)
def test_every_place_gets_its_batch_in_dynamic_graph(verdict: Verdict) -> None:
    assert verdict.result == [[0, 1], [2, 3], [4, 5]]


TAIL = Story(
    """
    import warnings
    import numpy as np
    import paddle
    from paddle.io import DataLoader
    from tests.peers.inside import numbers, tell

    paddle.enable_static()
    x = paddle.static.data("x", [None, 1], "float32")
    dataset = [np.float32([index]) for index in range(5)]
    places = [paddle.CPUPlace()] * 2
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        steps = [
            [numbers([feed["x"]])[0] for feed in step]
            for step in DataLoader(dataset, feed_list=[x], places=places, return_list=False)
        ]
    tell([steps, [str(warning.message) for warning in said if "batch" in str(warning.message)]])
    """
)


@demonstrated_by(TAIL)
def test_paddle_drops_the_last_group_of_places_without_a_word(verdict: Verdict) -> None:
    assert verdict.result == [[[0, 1], [2, 3]], []]


@proved_by(TAIL)
def test_last_group_of_places_is_dropped_with_a_warning_that_counts_it(verdict: Verdict) -> None:
    steps, said = verdict.result
    assert steps == [[0, 1], [2, 3]]
    assert len(said) == 1
    assert "1" in said[0]
    assert "drop_last_group" in said[0]


TAIL_ASKED_FOR = Story(
    TAIL.text.replace("return_list=False)", "return_list=False, drop_last_group=False)")
)


@proved_by(TAIL_ASKED_FOR)
def test_last_group_of_places_comes_on_request(verdict: Verdict) -> None:
    assert verdict.result == [[[0, 1], [2, 3], [4]], []]


UINT16 = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    batch = next(iter(DataLoader(np.array([[1, 2], [3, 40000]], "uint16"), batch_size=2)))
    field = batch[0] if isinstance(batch, list) else batch
    tell([str(field.dtype), np.asarray(field).tolist()])
    """
)


@demonstrated_by(UINT16)
def test_paddle_reads_uint16_as_bfloat16(verdict: Verdict) -> None:
    assert verdict.result[0] == "paddle.bfloat16"


@proved_by(UINT16)
def test_uint16_is_read_as_bfloat16_as_paddle_reads_it(verdict: Verdict) -> None:
    kind, bits = verdict.result
    assert kind == "paddle.bfloat16"
    assert bits == [[1, 2], [3, 40000]]


UINT32 = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    batch = next(iter(DataLoader(np.array([[1, 2], [3, 4]], "uint32"), batch_size=2)))
    field = batch[0] if isinstance(batch, list) else batch
    tell([str(field.dtype), np.asarray(field).tolist()])
    """
)


@demonstrated_by(UINT32, hang_s=HANG_S)
def test_paddle_cannot_deliver_uint32(verdict: Verdict) -> None:
    assert verdict.is_hung or verdict.exit_code, verdict.story()


@proved_by(UINT32)
def test_uint32_comes_with_its_values(verdict: Verdict) -> None:
    kind, values = verdict.result
    assert kind == "paddle.int64"
    assert values == [[1, 2], [3, 4]]


EMPTY_ARRAYS = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    dataset = [np.zeros((0, 3), "float32") for _ in range(4)]
    loader = DataLoader(dataset, batch_size=2, num_workers=2)
    tell([[list(batch.shape), str(batch.dtype)] for batch in loader])
    """
)


@demonstrated_by(EMPTY_ARRAYS, hang_s=HANG_S)
def test_paddle_fails_on_arrays_without_elements_from_workers(verdict: Verdict) -> None:
    assert verdict.is_hung or verdict.exit_code, verdict.story()


@proved_by(EMPTY_ARRAYS)
def test_arrays_without_elements_come_with_their_shape(verdict: Verdict) -> None:
    assert verdict.result == [[[2, 0, 3], "paddle.float32"]] * 2


EXTRA_KEYS = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    dataset = [{"x": np.zeros(2)}, {"x": np.ones(2), "weight": np.ones(1)}]
    try:
        tell([sorted(batch) for batch in DataLoader(dataset, batch_size=2)])
    except Exception as error:
        tell(str(error))
    """
)


@demonstrated_by(EXTRA_KEYS)
def test_paddle_drops_keys_that_the_first_sample_lacks(verdict: Verdict) -> None:
    assert verdict.result == [["x"]]


@proved_by(EXTRA_KEYS)
def test_key_that_the_first_sample_lacks_is_an_error_that_names_it(verdict: Verdict) -> None:
    assert "weight" in verdict.result


TEXT_BATCH = Story(
    """
    import numpy as np
    from paddle.io import DataLoader
    from tests.peers.inside import tell

    def collate(samples):
        return [np.array(samples), "_paddle_field_0", "_paddle_field_x"]

    tell([batch[1:] for batch in DataLoader(range(2), collate_fn=collate)])
    """
)


@demonstrated_by(TEXT_BATCH, hang_s=HANG_S)
def test_paddle_takes_strings_of_the_user_for_its_marks(verdict: Verdict) -> None:
    assert verdict.is_hung or verdict.exit_code, verdict.story()


@proved_by(TEXT_BATCH)
def test_no_string_of_the_user_is_taken_for_a_mark(verdict: Verdict) -> None:
    assert verdict.result == [["_paddle_field_0", "_paddle_field_x"]] * 2
