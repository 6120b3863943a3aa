"""Sums, differences and products of codes against NumPy's float32, which never fuses; tables."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from halfstep.numerics import elementwise
from halfstep.spec import QDType
from tests.assertions import assert_same_bits
from tests.operand import Operand
from tests.strategies import QUICK, operands, shapes


def _add(da: Any, sa: Any, db: Any, sb: Any) -> Any:
    return da.astype(np.float32) * sa + db.astype(np.float32) * sb


def _sub(da: Any, sa: Any, db: Any, sb: Any) -> Any:
    return da.astype(np.float32) * sa - db.astype(np.float32) * sb


def _mul(da: Any, sa: Any, db: Any, sb: Any) -> Any:
    return ((da * db).astype(np.float32) * sa) * sb


FORMULAS = [(elementwise.add, _add), (elementwise.sub, _sub), (elementwise.mul, _mul)]


@pytest.mark.parametrize(("op", "formula"), FORMULAS)
@QUICK
@given(data=st.data(), shape=shapes(max_dims=4), shared=st.integers(0, 4))
def test_two_operands(
    op: Callable[..., Tensor],
    formula: Callable[..., Any],
    data: st.DataObject,
    shape: tuple[int, ...],
    shared: int,
) -> None:
    """Every format with every other: exact integers, then float32 in the written order."""
    a = data.draw(operands(shape))
    b = data.draw(operands(tuple(1 if i < shared else n for i, n in enumerate(shape))))
    wanted = formula(a.steps.numpy(), a.scale.numpy(), b.steps.numpy(), b.scale.numpy())
    assert_same_bits(op(*a.args, *b.args), torch.from_numpy(np.asarray(wanted)))


def test_ranks_broadcast() -> None:
    """A vector meets the last dimension of a matrix, as in torch."""
    zero = torch.zeros(1, 1, dtype=torch.int32)
    a = Operand(torch.arange(6, dtype=torch.uint8).view(2, 3), torch.ones(1, 1), zero)
    b = Operand(torch.tensor([1, 2, 3], dtype=torch.int8), torch.ones(1), zero[0])
    assert elementwise.add(*a.args, *b.args).tolist() == [[1, 3, 5], [4, 6, 8]]
    assert elementwise.mul(*a.args, *b.args).tolist() == [[0, 2, 6], [3, 8, 15]]


@pytest.mark.parametrize("target", [torch.int8, torch.uint8, torch.int16, torch.uint16])
@pytest.mark.parametrize("source", [torch.int8, torch.uint8])
def test_every_code_finds_its_entry(source: torch.dtype, target: torch.dtype) -> None:
    """Entries count from the lowest code of the dtype; the table's dtype is the result's."""
    info = torch.iinfo(source)
    q = torch.arange(info.min, info.max + 1).to(source).view(2, 2, 8, 8)
    table = torch.arange(256).flip(0).to(torch.uint8).view(torch.int8).to(torch.int64)
    table = table.clamp(min=torch.iinfo(target).min).to(target)
    for codes in (q, q.contiguous(memory_format=torch.channels_last)):
        found = elementwise.look_up(codes, table)
        assert found.dtype == target
        assert torch.equal(found.to(torch.int64).flatten(), table.to(torch.int64))


def test_a_row_for_each_channel() -> None:
    """With (C, 256) entries axis 1 chooses the row, whatever the number of dimensions."""
    table = torch.stack([torch.arange(256), 255 - torch.arange(256)]).to(torch.uint8)
    q = torch.tensor([[0, 0], [7, 7]], dtype=torch.uint8)
    assert elementwise.look_up(q, table).tolist() == [[0, 255], [7, 248]]
    image = q.view(2, 2, 1, 1).expand(2, 2, 3, 4)
    assert elementwise.look_up(image, table)[:, :, 2, 3].tolist() == [[0, 255], [7, 248]]


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16"])
def test_clamp_codes(name: str) -> None:
    """Codes between the bounds stay; the dtype and the layout stay."""
    dtype = QDType.parse(name)
    q = torch.tensor([[dtype.qmin, 3], [5, dtype.qmax]]).to(dtype.storage).t()
    found = elementwise.clamp_codes(q, 3, 6)
    assert (found.dtype, found.tolist()) == (dtype.storage, [[3, 5], [3, 6]])
    assert found.stride() == q.stride()


def test_empty_codes() -> None:
    """No codes give no codes."""
    q = torch.empty(0, 3, dtype=torch.uint8)
    assert elementwise.look_up(q, torch.zeros(256, dtype=torch.int8)).shape == (0, 3)
    assert elementwise.clamp_codes(q, 0, 1).shape == (0, 3)
