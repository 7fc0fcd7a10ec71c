"""Ragged samples for programs that declare inputs with a LoD: feeds, and refusals.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import pytest

from tests.peers.program import Story, Verdict, proved_by

pytestmark = [pytest.mark.peer, pytest.mark.timeout(90)]

HEAD = """
    import numpy as np
    import paddle
    from paddle.io import DataLoader, Dataset
    from tests.peers.inside import tell

    class Sentences(Dataset):
        def __init__(self, as_dict):
            self.as_dict = as_dict

        def __len__(self):
            return 6

        def __getitem__(self, index):
            words = np.full((index % 3 + 1, 2), index, "float32")
            label = np.array([index])
            return {"label": label, "words": words} if self.as_dict else (words, label)

    paddle.enable_static()
    found = []
"""

FED = Story(
    HEAD
    + """
    with paddle.pir_utils.OldIrGuard():
        main = paddle.static.Program()
        with paddle.static.program_guard(main):
            words = paddle.static.data("words", [None, 2], "float32", lod_level=1)
            label = paddle.static.data("label", [None, 1], "int64")
            double = words * 2
        exe = paddle.static.Executor(paddle.CPUPlace())
        for as_dict in (False, True):
            for num_workers in (0, 2):
                for (feed,) in DataLoader(
                    Sentences(as_dict), feed_list=[words, label], batch_size=3,
                    return_list=False, num_workers=num_workers,
                ):
                    (out,) = exe.run(main, feed=feed, fetch_list=[double], return_numpy=False)
                    found.append([feed["words"].lod(), out.lod(), np.array(out)[:, 0].tolist(),
                                  np.array(feed["label"])[:, 0].tolist()])
    tell(found)
    """
)


@proved_by(FED)
def test_inputs_with_a_lod_get_the_samples_end_to_end(verdict: Verdict) -> None:
    lod = [[0, 1, 3, 6]]
    epoch = [
        [lod, lod, [0.0, 2.0, 2.0, 4.0, 4.0, 4.0], [0, 1, 2]],
        [lod, lod, [6.0, 8.0, 8.0, 10.0, 10.0, 10.0], [3, 4, 5]],
    ]
    assert verdict.result == epoch * 4


REFUSED = Story(
    HEAD
    + """
    x = paddle.static.data("words", [None, 2], "float32")
    y = paddle.static.data("label", [None, 1], "int64")
    for num_workers in (0, 2):
        try:
            list(DataLoader(Sentences(False), feed_list=[x, y], batch_size=3, return_list=False,
                            num_workers=num_workers))
        except ValueError as error:
            found.append(str(error))
    tell(found)
    """
)


@proved_by(REFUSED)
def test_ragged_samples_for_an_input_without_lod_are_refused_with_a_remedy(
    verdict: Verdict,
) -> None:
    for text in verdict.result:
        assert text.startswith("all input arrays must have the same shape")
        assert "[(1, 2), (2, 2), (3, 2)]" in text
        assert "concat_ragged" in text
    assert len(verdict.result) == 2


CONCATENATED = Story(
    HEAD
    + """
    import reader

    def collate(samples):
        words, labels = zip(*samples)
        return reader.concat_ragged(words), np.stack(labels)

    for num_workers in (0, 2):
        for words, label in DataLoader(
            Sentences(False), batch_size=3, collate_fn=collate, num_workers=num_workers
        ):
            found.append([words.lod(), np.array(words)[:, 0].tolist(), label.shape()])
    paddle.disable_static()
    for words, label in DataLoader(Sentences(False), batch_size=3, collate_fn=collate):
        found.append([words.get_tensor().lod(), words.numpy()[:, 0].tolist(), list(label.shape)])
    tell(found)
    """
)


@proved_by(CONCATENATED)
def test_lod_of_a_collate_fn_arrives_with_the_tensor(verdict: Verdict) -> None:
    lod = [[0, 1, 3, 6]]
    epoch = [
        [lod, [0.0, 1.0, 1.0, 2.0, 2.0, 2.0], [3, 1]],
        [lod, [3.0, 4.0, 4.0, 5.0, 5.0, 5.0], [3, 1]],
    ]
    assert verdict.result == epoch * 3
