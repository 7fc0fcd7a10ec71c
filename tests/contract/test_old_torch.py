"""The face for PyTorch beside an older PyTorch, whose loader and WorkerInfo have less than 2.13's.

`make extras` runs it beside the oldest; here stand-ins do without the same things.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch.utils.data

from reader import WorkerInfo
from reader.compat.torch import DataLoader, loader
from reader.worker.library_info import LibraryInfo


@pytest.mark.parametrize("in_order", [True, False])
def test_in_order_false_works_beside_a_pytorch_without_it(
    in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = torch.utils.data.DataLoader.__init__

    def older(made: Any, *arguments: Any, **options: Any) -> None:
        assert "in_order" not in options
        init(made, *arguments, **options)
        vars(made).pop("in_order", None)

    monkeypatch.setattr(torch.utils.data.DataLoader, "__init__", older)
    monkeypatch.setattr(loader, "takes_in_order", False)
    made: Any = DataLoader(range(8), batch_size=2, num_workers=2, in_order=in_order)
    assert made.in_order is in_order
    found = [batch.tolist() for batch in made]
    assert (found if in_order else sorted(found)) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_worker_info_has_what_pytorchs_has() -> None:
    facts = {"id": 1, "num_workers": 2, "seed": 3, "dataset": "data"}
    made = LibraryInfo(WorkerInfo(**facts))  # type: ignore[arg-type]

    class Oldest:
        def __init__(self, **facts: Any) -> None:
            vars(self).update(facts)

    @dataclasses.dataclass
    class Older:
        id: int
        num_workers: int
        seed: int
        dataset: str

    assert vars(made.made_by(Oldest)) == facts
    assert made.made_by(Older) == Older(1, 2, 3, "data")
