"""Torch tensors are looked into without a copy, with and without the C exchange of DLPack."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import torch
is_new = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
if {old} and is_new:
    del torch.Tensor.__dlpack_c_exchange_api__
import weakref
import numpy as np
import reader.data
from reader._core.batch.exchange import can_stack_tensor, is_plain_tensor
from reader._core.batch.tensor_array import LoDTensorArray
from tests.wire import wire

def can_be_said(dtype):
    try:
        return bool(torch.utils.dlpack.to_dlpack(torch.ones(2).to(dtype)))
    except RuntimeError:
        return False

plain = torch.arange(6.0).reshape(2, 3)
assert is_plain_tensor(plain)
assert can_stack_tensor(plain.t())
assert not is_plain_tensor(plain.t())
assert can_stack_tensor(torch.tensor([1j]).conj())
assert not is_plain_tensor(torch.tensor([1j]).conj())
assert not is_plain_tensor(torch.tensor([1j]).conj().imag)
for odd in (plain.to_sparse(), plain.to("meta"), plain.clone().requires_grad_(),
            torch.nn.Parameter(plain),
            torch._efficientzerotensor(2), plain.int().numpy(), None):
    assert not is_plain_tensor(odd)
    assert not can_stack_tensor(odd)
for dtype in (torch.uint8, torch.bool, torch.bfloat16, torch.complex64, torch.float8_e5m2):
    # the capsules of an older torch cannot say all of them
    assert is_plain_tensor(torch.ones(2).to(dtype)) == (is_new or can_be_said(dtype))
gone = weakref.ref(looked_at := torch.zeros(3))
assert is_plain_tensor(looked_at)
del looked_at
assert gone() is None
with wire() as road:
    for _ in range(2):
        batch = road.stack([(plain, plain.t(), torch.tensor(i)) for i in range(4)])
        fields = batch.storage_fields()
        assert np.array_equal(fields[0], [plain.numpy()] * 4)
        assert np.array_equal(fields[1], [plain.t().numpy()] * 4)
        assert fields[2].tolist() == [0, 1, 2, 3]
        del batch, fields
print("done")
"""


@pytest.mark.parametrize("is_old", [False, True], ids=["exchange", "capsules"])
def test_tensors_are_distinguished_by_their_contents(is_old: bool) -> None:
    program = PROGRAM.format(old=is_old)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "done\n", done.stderr
