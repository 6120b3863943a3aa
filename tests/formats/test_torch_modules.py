"""Pickled modules, graph modules and TorchScript archives read like their state dicts."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from halfstep.formats import load_tensors

# Torch is about to forget these: what it wrote stays readable, and tested by the golden files.
old = pytest.importorskip("torch.ao.quantization")
quantize_fx = pytest.importorskip("torch.ao.quantization.quantize_fx")
pytestmark = pytest.mark.filterwarnings("ignore")


class Net(nn.Module):
    """A convolution and a linear layer, between the stubs of eager quantization."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.end = old.QuantStub(), old.DeQuantStub()
        self.conv, self.fc = nn.Conv2d(2, 3, 1), nn.Linear(3, 2)
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of an image."""
        out: Tensor = self.end(self.fc(self.conv(self.start(x)).mean((2, 3)))) + self.shift
        return out


@pytest.fixture
def image() -> Tensor:
    """Two random images; torch's engine is one that this machine has."""
    engines = torch.backends.quantized.supported_engines
    torch.backends.quantized.engine = next(name for name in engines if name != "none")
    return torch.randn(2, 2, 4, 4)


def converted(image: Tensor, *, as_graph: bool) -> nn.Module:
    """The network, quantized by torch's old eager or graph mode."""
    warnings.simplefilter("ignore")
    model, config = Net().eval(), old.get_default_qconfig(torch.backends.quantized.engine)
    if as_graph:
        mapping = old.QConfigMapping().set_global(config)
        prepared = quantize_fx.prepare_fx(model, mapping, image)
        prepared(image)
        graph: nn.Module = quantize_fx.convert_fx(prepared)
        return graph
    model.qconfig = config
    prepared = old.prepare(model)
    prepared(image)
    eager: nn.Module = old.convert(prepared)
    return eager


@pytest.mark.parametrize("as_graph", [False, True])
def test_a_quantized_module_reads_like_its_state_dict(
    tmp_path: Path, image: Tensor, *, as_graph: bool
) -> None:
    """Names, order and values, the scale and zero point of each output among them."""
    model = converted(image, as_graph=as_graph)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    torch.save(model, tmp_path / "model.pt")
    state, loaded = load_tensors(tmp_path / "state.pt"), load_tensors(tmp_path / "model.pt")
    assert {"fc.scale", "fc.zero_point", "conv.scale", "fc.weight", "shift"} <= state.keys()
    assert list(loaded) == list(state)
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype, name
        assert loaded[name].shape == tensor.shape, name
        assert torch.equal(loaded[name].double(), tensor.double()), name


def test_a_scripted_module_keeps_its_numbers_and_a_traced_one_does_not(
    tmp_path: Path, image: Tensor
) -> None:
    """Tracing writes the linear layer's output parameters into its code, as the page says."""
    model = converted(image, as_graph=False)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    torch.jit.save(torch.jit.script(model), tmp_path / "scripted.pt")
    torch.jit.save(torch.jit.trace(model, image), tmp_path / "traced.pt")
    state = load_tensors(tmp_path / "state.pt").keys()
    assert load_tensors(tmp_path / "scripted.pt").keys() == state
    assert load_tensors(tmp_path / "traced.pt").keys() == state - {"fc.scale", "fc.zero_point"}


class Scaled(nn.Module):
    """A module of the user's with numbers of the same names, which no state dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 0.5, 3
        self.fc = nn.Linear(1, 1)


def test_numbers_of_other_modules_stay_numbers(tmp_path: Path) -> None:
    """Only torch's quantized modules turn theirs into tensors."""
    torch.save(Scaled(), tmp_path / "x.pt")
    assert list(load_tensors(tmp_path / "x.pt")) == ["fc.weight", "fc.bias"]
