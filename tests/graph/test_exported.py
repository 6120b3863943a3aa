"""Programs of torch.export as models: names, arguments, results, and what is refused."""

import copy
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.graph.capture import capture
from halfstep.graph.exported import model_of
from halfstep.graph.program import Program

BATCH = torch.export.Dim("batch", min=2)


class Net(nn.Module):
    """A batch norm, tied weights, and a submodule called ``model``."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
        self.fc = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.fc.weight

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """(N, 1, H, W) to (N, 4)."""
        return {"y": self.tied(self.fc(torch.relu(self.model(x)).mean((2, 3))))}


class Many(nn.Module):
    """Arguments of many kinds."""

    def forward(self, x: Tensor, pair: Any, flag: bool = True, *, mask: Any = None) -> Any:  # noqa: FBT001, FBT002
        """A nested result."""
        return {"sum": x + pair[0] * (1 if flag else 2), "more": (pair[1], 3)}


def through_a_file(program: Any, folder: Path) -> Any:
    """The program after it was saved and loaded."""
    torch.export.save(program, folder / "m.pt2")
    return torch.export.load(folder / "m.pt2")


def test_a_saved_program_is_a_model(tmp_path: Path) -> None:
    """The same names of tensors, the same results for other batch sizes, and it is copied."""
    net = Net().eval()
    program = torch.export.export(net, (torch.randn(4, 1, 8, 8),), dynamic_shapes={"x": {0: BATCH}})
    model = model_of(through_a_file(program, tmp_path))
    for count in (1, 7):
        x = torch.randn(count, 1, 8, 8)
        assert torch.equal(copy.deepcopy(model)(x)["y"], net(x)["y"])
    assert dict(model.named_parameters()).keys() == dict(net.named_parameters()).keys()
    assert model.state_dict().keys() == net.state_dict().keys()
    assert not any(module.training for module in model.modules())


def test_its_program_is_captured_as_it_is(tmp_path: Path) -> None:
    """Not traced again: steps know the modules that they stem from."""
    program = torch.export.export(Net().eval(), (torch.randn(4, 1, 8, 8),))
    model = model_of(through_a_file(program, tmp_path))
    (region,) = capture(model, (torch.randn(4, 1, 8, 8),)).regions
    (captured,) = region.programs
    assert isinstance(captured, Program)
    assert [step.source for step in captured.steps] == ["model.0", "model.1", "", "", "fc", "tied"]


def test_arguments_are_those_of_the_original(tmp_path: Path) -> None:
    """Nested ones, keywords, and constants, which need not be given again."""
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    program = torch.export.export(Many(), (x, (x, y), False), {"mask": None})
    model = model_of(through_a_file(program, tmp_path))
    assert str(inspect.signature(model.forward)) == "(x, pair, flag=False, *, mask=None)"
    found, expected = model(x, (x, y)), Many()(x, (x, y), flag=False)
    assert torch.equal(found["sum"], expected["sum"])
    assert found["more"][1] == 3


@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")  # torch's, of its own code
def test_train_mode_is_refused() -> None:
    """Batch statistics of the moment are no model; what writes its buffers is no function."""
    program = torch.export.export(Net().train(), (torch.randn(4, 1, 8, 8),))
    with pytest.raises(ArgumentError, match=r"batch_norm.default of model.1.*model.eval\(\)"):
        model_of(program)
    with pytest.raises(ArgumentError, match="buffer_mutation"):
        model_of(program.run_decompositions())


def test_a_part_is_not_called_by_itself() -> None:
    """The code of the parts is not in the file."""
    model = model_of(torch.export.export(Net().eval(), (torch.randn(4, 1, 8, 8),)))
    with pytest.raises(ArgumentError, match="whole model only"):
        model.get_submodule("fc")(torch.randn(1, 4))
