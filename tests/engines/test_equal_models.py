"""The torch engine equals the formulas in every step of every kind of model."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree

import halfstep as hs
from benchmarks.models import MobileNetV2, ResNet18
from halfstep.engines import onednn, probe
from halfstep.flows import ptq
from halfstep.graph.frozen import Bound
from halfstep.numerics import native
from halfstep.spec.recipe import Recipe
from halfstep.spec.recipes import dynamic_int8, static_int8, weight_only
from tests.engines.ties import BESIDE, ON, on_half_steps, snapped
from tests.engines.twice import Tally, difference_between, running_twice, with_threads
from tests.graph.zoo import rand
from tests.graph.zoo_cases import PARTS, WHOLE, made

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")

ROOT = Path(__file__).parents[2]
CASES = {**WHOLE, **{name: case for name, (case, _) in PARTS.items()}}
RECIPES: dict[str, Callable[[], Recipe]] = {
    "static": static_int8,
    "dynamic": dynamic_int8,
    "weight_only": weight_only,
    "int4": lambda: weight_only(hs.int4, group_size=2),
}
THREADS = (1, 2)
# Their weights are integers and their arithmetic is torch's, so that a few say it for all.
BY_WEIGHT_ALONE = ("linear", "tied", "block", "transposed", "conv1d", "embedding_bag", "LSTM_deep")
# One sample depends on others by what the model computes, or there is no batch.
TOGETHER = ("quiet", "several_inputs", "lstm_unbatched", "gru_unbatched", "greedy", "branching")
# What torch computes differently in the middle and at the end of memory, by a last bit.
BY_PLACE = ("ELU", "SiLU", "Mish", "Sigmoid", "Softplus", "SELU", "CELU")
# Where the samples of each argument lie, if not along its first dimension.
BATCH: dict[str, Any] = {
    "outputs": ((0, (0, None)), {"mask": 0}),
    "lstm_states": ((0, (1, 1)), {}),
    "gru_state": ((1, 1), {}),
    **{name: ((1,), {}) for name in CASES if name.startswith(("LSTM_", "GRU_", "RNN_"))},
    "lstm_projected": ((1,), {}),
}


@pytest.fixture(autouse=True)
def _steps_of_attention() -> Iterator[None]:
    """Torch's fused attention rounds differently, and is no part of a program."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def call(model: nn.Module, batch: Any) -> Any:
    """Run a model on one call of a case."""
    args, kwargs = batch
    return model(*args, **kwargs)


@cache
def quantized(name: str, way: str) -> nn.Module:
    """The model of a case, calibrated on its example; by layers where weights alone change."""
    case, recipe = CASES[name], RECIPES[way]()
    example = None if way in ("weight_only", "int4") else case.arguments()[:1]
    return ptq.quantize(made(case), example, recipe, forward=call, check="none").model


def compared(model: nn.Module, batches: list[Any]) -> Tally:
    """What was compared while the model ran on the batches, with 1 and with 2 threads."""
    twin, tally = running_twice(model)
    with torch.no_grad():
        for threads in THREADS:
            for batch in batches:
                with_threads(threads, lambda batch=batch: call(twin, batch))
    assert not tally.differences, "\n".join(tally.differences[:1])
    return tally


def compared_at_ties(model: nn.Module, batch: Any) -> None:
    """Compare with weights and scales by which every second sum is at a tie, or beside it."""
    for mantissas in (ON, BESIDE):
        moved = snapped(model, mantissas)
        compared(moved, [on_half_steps(moved, *batch)])


@pytest.mark.parametrize("name", CASES)
def test_static(name: str) -> None:
    """All steps, on the example, other sizes and half steps; as calibrated, and at ties."""
    model, calls = quantized(name, "static"), CASES[name].arguments()
    compared(model, [*calls, on_half_steps(model, *calls[0])])
    compared_at_ties(model, calls[0])


@pytest.mark.parametrize("name", CASES)
def test_dynamic(name: str) -> None:
    """All steps, on the example, other sizes and rows of half steps."""
    model, calls = quantized(name, "dynamic"), CASES[name].arguments()
    compared(model, [*calls, on_half_steps(model, *calls[0])])


@pytest.mark.parametrize("way", ["weight_only", "int4"])
@pytest.mark.parametrize("name", BY_WEIGHT_ALONE)
def test_weight_only(name: str, way: str) -> None:
    """All steps of layers whose weights alone are integers."""
    compared(quantized(name, way), CASES[name].arguments())


def test_groups_of_32() -> None:
    """All steps of linear layers with 4-bit weights in groups, after a step and by themselves."""
    model = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64)).eval()
    recipe = weight_only(hs.int4, group_size=32)
    for batches in (None, rand(5, 64)):
        result = ptq.quantize(model, batches, recipe, check="none")
        tally = compared(result.model, [((rand(n, 64),), {}) for n in (1, 5)])
        assert tally.elements > 0


def one_sample(dims: Any, given: Any, index: int) -> Any:
    """The arguments for one sample; dims as the arguments, with None for what is no batch."""
    if isinstance(given, tuple):
        return tuple(one_sample(d, x, index) for d, x in zip(dims, given, strict=True))
    if isinstance(given, dict):
        return {key: one_sample(dims[key], x, index) for key, x in given.items()}
    return given if dims is None else given.narrow(dims, index, 1).clone()


def tensors(output: Any) -> list[Tensor]:
    """The tensors of an output, dataclasses opened."""
    found = _pytree.tree_leaves(output)
    opened = [leaf.score if hasattr(leaf, "score") else leaf for leaf in found]
    return [leaf for leaf in opened if isinstance(leaf, Tensor)]


@pytest.mark.parametrize("name", [name for name in CASES if name not in (*TOGETHER, *BY_PLACE)])
def test_samples_do_not_know_each_other(name: str) -> None:
    """Dynamic: a sample alone gives what it gives in a batch, in every bit."""
    model, case = quantized(name, "dynamic"), CASES[name]
    batch = max(case.arguments(), key=lambda each: tensors(each)[0].numel())
    dims = BATCH.get(name, _pytree.tree_map(lambda _: 0, batch))
    with torch.no_grad():
        together = tensors(with_threads(2, lambda: call(model, batch)))
        first, dim = tensors(batch)[0], next(iter(_pytree.tree_leaves(dims)))
        for index in range(first.shape[dim]):
            alone = one_sample(dims, batch, index)
            for y, one in zip(together, tensors(call(model, alone)), strict=True):
                along = next(d for d in range(y.ndim) if y.shape[d] != one.shape[d])
                difference = difference_between(one, y.narrow(along, index, 1))
                assert not difference, f"sample {index}: {difference}"


def test_onednn_runs_where_it_is_exact_alone() -> None:
    """The probe's answer decides, whatever it is: none is bound of a class that differs."""
    tally = compared(quantized("block", "static"), CASES["block"].arguments())
    exact = {name for name, agrees in probe.report().items() if agrees}
    convolutions = {"conv", "pointwise conv", "conv with a residual"}
    assert (tally.by_onednn > 0) == bool(exact & convolutions)
    if native.is_loaded():
        assert tally.bound["int.conv"] == 3


def test_a_wrong_integer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One code that is off by one fails, and is told with its step, its number and its size."""

    def off_by_one(step: Any, lookup: Any) -> Bound | None:
        if step.op != "int.linear":
            return None
        x = step.args[0]
        return Bound(lambda x: (x[..., :4] + 1).to(torch.uint8), (x,))

    monkeypatch.setattr("halfstep.engines.torch_engine.bind", off_by_one)
    with pytest.raises(AssertionError, match=r"int.linear.*\n.* of \d+ elements differ, by up to"):
        compared(quantized("sequential", "static"), CASES["sequential"].arguments())


def with_statistics(model: nn.Module, x: Tensor) -> nn.Module:
    """The model with batch norms that keep what it computes in range."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model.train()(x)
    return model.eval()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the quantized model is at")  # of random weights on noise
@pytest.mark.parametrize("kind", [ResNet18, MobileNetV2])
def test_large_networks(kind: Callable[[], nn.Module]) -> None:
    """All steps of networks of many layers, as calibrated and at ties, of one image."""
    x = rand(4, 3, 64, 64)
    model = ptq.quantize(with_statistics(kind(), x), x, check="none").model
    image = ((x[:1],), {})
    compared(model, [image])
    compared_at_ties(model, image)


@pytest.mark.models
@pytest.mark.slow
def test_efficientnet() -> None:
    """All steps of EfficientNet-Lite0 with its real weights, on one image."""
    model = pytest.importorskip("examples.real.effnet_lite0").load_model()
    x = rand(1, 3, 224, 224)
    compared(ptq.quantize(model, x, check="none").model, [((x,), {})])


SOME = (
    *("block", "depthwise", "transposed", "conv1d", "conv3d", "max_pool"),
    *("sequential", "mha", "LSTM_deep", "Hardswish"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [{"ONEDNN_MAX_CPU_ISA": "AVX2"}, {"HALFSTEP_NATIVE": "0"}],
    ids=["AVX2", "without kernels"],
)
def test_equal_on_other_machines(variables: dict[str, str]) -> None:
    """The same where oneDNN's sums saturate, which the probe has to see, and without kernels."""
    if "ONEDNN_MAX_CPU_ISA" in variables and not onednn.is_there():
        pytest.skip("no oneDNN")
    file = Path(__file__).relative_to(ROOT)
    tests = [f"{file}::test_{way}[{name}]" for way in ("static", "dynamic") for name in SOME]
    tests += [f"{file}::test_onednn_runs_where_it_is_exact_alone"]
    code = (
        "import sys, pytest; from halfstep.engines import probe; "
        "print('exact:', any(probe.report().values())); "
        f"sys.exit(pytest.main(['-q', '-x', '-p', 'no:cacheprovider', *{tests}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(tests)} passed" in done.stdout
    if "ONEDNN_MAX_CPU_ISA" in variables:
        assert "exact: False" in done.stdout
