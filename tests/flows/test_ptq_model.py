"""The quantized model is an ordinary module of the user's class."""

import copy
import io
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.flows import ptq
from halfstep.flows.result import Result
from tests.graph import zoo
from tests.graph.zoo import rand, tokens


class Net(zoo.Block):
    """A residual block with a method beside forward that calls its layers in Python."""

    def encode(self, x: Tensor) -> Tensor:
        """The first half."""
        return self.relu(self.bn1(self.conv1(x)))


@pytest.fixture(scope="module")
def model() -> Net:
    """With batch statistics that are not the initial ones."""
    torch.manual_seed(0)
    net = Net().train()
    for _ in range(3):
        net(2 * torch.randn(8, 3, 8, 8) + 1)
    return net.eval()


@pytest.fixture(scope="module")
def x() -> Tensor:
    """Images."""
    return 2 * rand(6, 3, 8, 8) + 1


@pytest.fixture
def result(model: Net, x: Tensor) -> Result:
    """Quantized on them."""
    return ptq.quantize(model, x)


def test_names_remain_and_weights_are_integers(model: Net, result: Result) -> None:
    """Parameters and buffers by their old names, weights as QTensor, the state_dict as well."""
    quantized = result.model
    assert [name for name, _ in quantized.named_parameters()] == [
        name for name, _ in model.named_parameters()
    ]
    assert list(quantized.state_dict()) == list(model.state_dict())
    for weight in (quantized.get_parameter("conv1.weight"), quantized.state_dict()["conv1.weight"]):
        assert isinstance(weight, hs.QTensor)
        assert weight.axis == 0
    assert isinstance(quantized.get_parameter("conv1.weight"), nn.Parameter)
    assert not isinstance(quantized.get_parameter("skip.bias"), hs.QTensor)


def test_another_method_still_computes_the_same(model: Net, result: Result, x: Tensor) -> None:
    """Python that calls a folded layer and its batch norm gets what both gave before."""
    expected, found = model.encode(x), result.model.encode(x)
    assert (expected - found).norm() < 0.02 * expected.norm()


def test_a_layer_with_a_bias_and_a_norm_without_weights(x: Tensor) -> None:
    """The folded bias is added once, in the program and in Python."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)).train()
    net(x)
    net.eval()
    result = ptq.quantize(net, x)
    in_python = result.model[1](result.model[0](x))
    for found in (result.model(x), in_python):
        assert (net(x) - found).norm() < 0.02 * net(x).norm()


def test_any_batch_size_and_both_modes(model: Net, result: Result, x: Tensor) -> None:
    """One image, or many; ``train`` and ``eval`` may be called and change nothing."""
    y = result.model(x)
    assert torch.equal(result.model(x[:1]), y[:1])
    assert result.model(rand(3, 3, 10, 6)).shape == (3, 8, 10, 6)
    assert torch.equal(result.model.train()(x), y)
    assert torch.equal(result.model.eval()(x), y)


def test_copies_and_pickles_compute_the_same(result: Result, x: Tensor) -> None:
    """deepcopy, pickle, torch.save of the object; each has tensors of its own."""
    y = result.model(x)
    stored = io.BytesIO()
    torch.save(result.model, stored)
    stored.seek(0)
    copies = [
        copy.deepcopy(result.model),
        pickle.loads(pickle.dumps(result.model)),
        torch.load(stored, weights_only=False),
        copy.deepcopy(result).model,
    ]
    for other in copies:
        assert type(other) is Net
        assert torch.equal(other(x), y)
        assert other.conv1.weight is not result.model.conv1.weight


def test_a_pickle_is_read_in_a_new_process(x: Tensor) -> None:
    """The file alone is enough."""
    plain = nn.Sequential(nn.Linear(6, 3), nn.LSTM(3, 2)).eval()
    quantized = ptq.quantize(plain, rand(8, 6)).model
    code = (
        "import pickle, sys, torch; m = pickle.load(sys.stdin.buffer);"
        "sys.stdout.buffer.write(m(torch.ones(7, 6))[0].numpy().tobytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(quantized), capture_output=True, check=True
    )
    assert done.stdout == quantized(torch.ones(7, 6))[0].numpy().tobytes()


def _first_row(model: nn.Module, x: Tensor) -> list[float]:
    torch.set_num_threads(1)
    row: list[float] = model(x).flatten().tolist()
    return row


def test_other_processes_and_threads(result: Result, x: Tensor) -> None:
    """A spawned process and many threads get the same."""
    y = result.model(x)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_first_row, (result.model, x)) == y.flatten().tolist()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda n: result.model(x[:n]), [1, 2, 3, 4, 5, 6] * 4))
    assert all(torch.equal(one, y[: len(one)]) for one in found)


def test_without_gradients(result: Result, x: Tensor) -> None:
    """no_grad and inference_mode give what a plain call gives, in any order."""
    quantized = copy.deepcopy(result.model)
    with torch.inference_mode():
        first = quantized(x)
    with torch.no_grad():
        second = quantized(x)
    assert torch.equal(first, second)
    assert torch.equal(quantized(x), second)
    with torch.inference_mode():
        assert torch.equal(quantized(x), second)


@pytest.mark.parametrize("options", [{}, {"assign": True}, {"strict": False}])
def test_a_float_state_is_refused(model: Net, result: Result, options: Any) -> None:
    """The error names the parameter, and says what to do; the model is as it was."""
    with pytest.raises(hs.HalfstepError, match=r"conv1.weight of this state is torch.float32, and"):
        result.model.load_state_dict(model.state_dict(), **options)
    with pytest.raises(hs.HalfstepError, match=r"weight of this state is torch.float32"):
        result.model.conv2.load_state_dict(model.conv2.state_dict())
    wrapped = nn.Sequential(copy.deepcopy(result.model))
    with pytest.raises(hs.HalfstepError, match=r"0.conv1.weight of this state"):
        wrapped.load_state_dict({f"0.{key}": value for key, value in model.state_dict().items()})
    assert isinstance(result.model.conv1.weight, hs.QTensor)


def test_a_state_quantized_alike_is_loaded(model: Net, result: Result, x: Tensor) -> None:
    """Between results of one recipe; the model that has already run uses the new one at once."""
    other_net = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other_net.parameters():
            parameter.mul_(1.1)
    other = ptq.quantize(other_net, x).model
    other(x)
    state = result.model.state_dict()
    other.load_state_dict(state)
    for name in ("conv1.weight", "conv2.weight"):
        assert torch.equal(other.get_parameter(name).int_repr(), state[name].int_repr())
        assert torch.equal(other.get_parameter(name).scale, state[name].scale)


def test_shared_weights_stay_shared() -> None:
    """Tied layers hold one QTensor, counted once, which both programs read."""
    model = zoo.Tied().eval()
    result = ptq.quantize(model, tokens(8, 5))
    assert result.model.out.weight is result.model.embedding.weight
    assert isinstance(result.model.out.weight, hs.QTensor)
    assert result.model.title == "tied"
    assert result.summary.bytes_before == 240
    assert result.summary.bytes_after == 60 + 2 * 40  # codes, scales and zero points


def test_tied_layers_that_ask_for_different_formats() -> None:
    """The first format is kept; the other layer computes in float, and the coverage says why."""
    model = zoo.Tied().eval()
    per_tensor = hs.QSpec(hs.int8, symmetric=True)
    rows = per_tensor.with_granularity(hs.PerChannel(0))
    rules = [hs.Rule("embedding", weight=rows), hs.Rule("out", weight=per_tensor)]
    result = ptq.quantize(model, tokens(8, 5), rules)
    (out,) = result.coverage.of("out")
    assert out.runs == "float"
    assert (
        "another layer keeps its weight embedding.weight as QSpec(int8, PerChannel(axis=0)"
        in out.why
    )
    assert result.summary.sqnr is not None
    assert result.summary.sqnr > 30


def test_a_model_with_values_changed_in_place() -> None:
    """The input that a model changes is not changed twice while it is calibrated and compared."""

    class Doubling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Any:
            return self.fc(x.mul_(2))

    result = ptq.quantize(Doubling().eval(), [rand(8, 6), rand(4, 6)])
    assert result.summary.sqnr is not None
    assert result.summary.sqnr > 30
