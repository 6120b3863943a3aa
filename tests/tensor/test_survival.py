"""A quantized tensor comes through copying, storing, modules, processes and threads unharmed."""

import copy
import gc
import io
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import halfstep as hs
from halfstep import MutationError, PerChannel, PerGroup, PerToken, QSpec, QTensor

X = torch.arange(-12.0, 12.0).reshape(2, 3, 4)
FORMATS = (
    QSpec(hs.int8, PerChannel(1)),
    QSpec(hs.uint4, PerGroup(2, 2)),
    QSpec(hs.int2),
    QSpec(hs.uint16, PerToken()),
    QSpec(hs.int32, PerChannel(0)),
    QSpec(hs.uint8, PerChannel(0), float_zero_point=True),
)
each_format = pytest.mark.parametrize("spec", FORMATS, ids=repr)


def assert_same(found: Any, expected: Tensor) -> None:
    """The same type, format, float dtype, qparams and integers."""
    assert isinstance(found, QTensor)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


def saved(value: Any, **how: Any) -> Any:
    """What torch.load(weights_only=True) makes of what torch.save wrote."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True, **how)


@each_format
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_copies_and_files(spec: QSpec, dtype: torch.dtype) -> None:
    """copy, deepcopy, pickle, and torch.save with weights_only, of the tensor and of a view."""
    whole = hs.quantize(X.to(dtype), spec)
    for q in (whole, whole[1:], whole.transpose(0, 1)):
        assert_same(copy.copy(q), q)
        assert_same(copy.deepcopy(q), q)
        assert_same(pickle.loads(pickle.dumps(q)), q)
        assert_same(saved(q), q)
        assert_same(saved({"w": [q]}, map_location="cpu")["w"][0], q)


def test_deepcopy_shares_nothing_and_keeps_attributes() -> None:
    """A deep copy has its own memory, and the attributes that were set."""
    q: Any = hs.quantize(X, hs.int8)
    q.note = "mine"
    twin = copy.deepcopy([q, q])
    assert twin[0] is twin[1]
    assert twin[0].note == "mine"
    assert twin[0].ints.data_ptr() != q.ints.data_ptr()


def test_load_with_mmap(tmp_path: Path) -> None:
    """torch.load(mmap=True) maps the integers."""
    q = hs.quantize(X, hs.int8, axis=1)
    torch.save({"q": q}, tmp_path / "q.pt")
    assert_same(torch.load(tmp_path / "q.pt", weights_only=True, mmap=True)["q"], q)


@pytest.mark.slow
def test_load_in_a_fresh_process(tmp_path: Path) -> None:
    """With halfstep imported it loads; without, torch names what it will not trust."""
    q = hs.quantize(X, hs.int4, axis=1)
    torch.save(q, tmp_path / "q.pt")
    script = "import torch; print(torch.load('q.pt', weights_only=True).spec)"
    run = [sys.executable, "-c"]
    how: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True}
    found = subprocess.run([*run, "import halfstep;" + script], check=True, **how)
    assert found.stdout.strip() == "QSpec(int4, PerChannel(axis=1))"
    refused = subprocess.run([*run, script], check=False, **how)
    assert refused.returncode
    assert "halfstep.tensor.qtensor.rebuild_qtensor" in refused.stderr


@each_format
def test_parameters_stay_parameters(spec: QSpec) -> None:
    """nn.Parameter of a quantized tensor is both, also after copying and storing."""
    parameter = nn.Parameter(hs.quantize(X, spec), requires_grad=False)
    pickled = pickle.loads(pickle.dumps(parameter))
    for one in (parameter, copy.deepcopy(parameter), saved(parameter), pickled):
        assert isinstance(one, nn.Parameter)
        assert isinstance(one, QTensor)
        assert not one.requires_grad
    trained = nn.Parameter(hs.quantize(X, spec))
    assert saved(trained).requires_grad
    assert copy.deepcopy(trained).requires_grad


class Holder(nn.Module):
    """A module with one weight."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=not isinstance(weight, QTensor))


@each_format
def test_state_dict_in_all_directions(spec: QSpec) -> None:
    """Quantized into quantized keeps integers, into float dequantizes, assign=True replaces."""
    q = hs.quantize(X, spec)
    state = saved(Holder(q).state_dict())
    same, floats, fresh = Holder(hs.quantize(3 * X, spec)), Holder(X.clone()), Holder(X.clone())
    same.load_state_dict(state)
    assert_same(same.weight, q)
    floats.load_state_dict(state)
    assert torch.equal(floats.weight, q.dequantize())
    fresh.load_state_dict(state, assign=True)
    assert_same(fresh.weight, q)
    with pytest.raises(RuntimeError, match="quantize them first"):
        same.load_state_dict(Holder(X.clone()).state_dict())
    assert_same(same.weight, q)


def test_module_moves() -> None:
    """Module.half and Module.to change the dtype stood for, not the integers."""
    q = hs.quantize(X, hs.int8, axis=0)
    module: Any = Holder(q).half()
    assert module.weight.dtype == torch.float16
    assert isinstance(module.weight, QTensor)
    assert torch.equal(module.weight.int_repr(), q.int_repr())
    assert module.to(torch.float64).weight.dtype == torch.float64
    assert copy.deepcopy(module).weight.spec == q.spec


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_optimizers_refuse(optimizer: Any) -> None:
    """A step that would change the integers raises; it is not lost."""
    module = Holder(hs.quantize(X, hs.int8))
    module.weight.requires_grad_(True)
    (module.weight.dequantize() ** 2).sum().backward()
    before = module.weight.int_repr()
    with pytest.raises(MutationError):
        optimizer(module.parameters(), lr=0.1).step()
    assert torch.equal(module.weight.int_repr(), before)


@each_format
def test_to_keeps_integers(spec: QSpec) -> None:
    """to(dtype) changes what is stood for, to(int) leaves, to(meta) keeps the format."""
    q = hs.quantize(X, spec)
    for made in (q.to(torch.bfloat16), q.half(), q.double(), q.type_as(torch.zeros(1))):
        assert torch.equal(made.int_repr(), q.int_repr())
    assert q.to(torch.bfloat16).dtype == torch.bfloat16
    assert torch.equal(q.int(), q.dequantize().int())
    meta = q.to("meta")
    assert isinstance(meta, QTensor)
    assert meta.is_meta
    assert meta.spec == q.spec


def test_numpy_dlpack_and_lists_are_the_floats() -> None:
    """numpy(), np.asarray, DLPack and tolist() give floats; int_repr().numpy() the integers."""
    q = hs.quantize(X, hs.int8, axis=1)
    expected = q.dequantize().numpy()
    for array in (q.numpy(), np.asarray(q), np.from_dlpack(q), np.array(q.tolist())):
        np.testing.assert_array_equal(array, expected)
    assert torch.equal(torch.utils.dlpack.from_dlpack(q), q.dequantize())
    assert q.int_repr().numpy().dtype == np.int8


@each_format
def test_shared_memory(spec: QSpec) -> None:
    """share_memory_ shares the inner tensors; the tensor stays what it was."""
    q = hs.quantize(X, spec)
    expected = copy.deepcopy(q)
    assert not q.is_shared()
    assert q.share_memory_() is q
    assert q.is_shared()
    assert_same(q, expected)


def double(inbox: Any, outbox: Any) -> None:
    """In another process: take a tensor and give back twice of it."""
    outbox.put(inbox.get() * 2)
    inbox.get()  # stay until the result has been read


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork with threads, on newer Pythons
def test_multiprocessing(method: str) -> None:
    """Through queues to another process and back."""
    context: Any = torch.multiprocessing.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=double, args=(inbox, outbox), daemon=True)
    process.start()
    q = hs.quantize(X, hs.int4, axis=1)
    inbox.put(q)
    assert_same(outbox.get(timeout=60), q * 2)
    inbox.put(None)
    process.join(60)


class Quantized(Dataset[QTensor]):
    """Four tensors with the same qparams."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> QTensor:
        return hs.quantize(X[0] + index, hs.int8, scale=0.5, zero_point=0)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_data_loader(workers: int) -> None:
    """A DataLoader stacks them, here or in a worker, with or without a collate function."""
    expected = torch.stack([X[0] + n for n in range(4)])
    for settings in ({}, {"collate_fn": torch.stack}):
        (batch,) = DataLoader(Quantized(), 4, num_workers=workers, **settings)
        assert isinstance(batch, QTensor)
        assert torch.equal(batch.dequantize(), expected)


def test_threads_read_together() -> None:
    """Several threads compute with one tensor at once and agree."""
    q, found = hs.quantize(torch.randn(64, 64), hs.int8, axis=0), []
    threads = [threading.Thread(target=lambda: found.append((q @ q + 1).sum())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(float, found))) == 1


def test_no_reference_cycles() -> None:
    """The last reference gone, the memory is free, without the garbage collector."""
    gc.disable()
    try:
        q = hs.quantize(X, hs.int8, axis=1)
        views = [q.transpose(0, 1), q[0], q.relu()]
        alive = [weakref.ref(one) for one in (q, *views)]
        del q, views
        assert not any(reference() is not None for reference in alive)
    finally:
        gc.enable()


def test_identity() -> None:
    """Hashable by identity, as tensors are, so usable in sets and as keys."""
    q = hs.quantize(X, hs.int8)
    assert {q: 1}[q] == 1
    assert len({q, q, q.clone()}) == 2
