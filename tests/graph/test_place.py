"""Placement: what runs in integers is what an expert would choose, and the rest says why not."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import halfstep as hs
from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.graph.export import export
from halfstep.graph.matching import Matcher
from halfstep.graph.normalize import normalized
from halfstep.graph.place import Placement, place
from halfstep.graph.quantized import Execution
from halfstep.spec import recipes

WEIGHT = hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True)


class Function(nn.Module):
    """Two layers and a function around them."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.w = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Any:
        """What the function returns."""
        return self.function(self, x)


def placed(module: nn.Module, x: Tensor, rules: Any = None) -> Placement:
    """The placement of a model under some rules, by default static int8."""
    program = normalized(export(module.eval(), (x,)))
    return place(program, module, Matcher(list(rules or recipes.static_int8()), module))


def executions(module: Any, x: Tensor | None = None, rules: Any = None) -> dict[str, str]:
    """How each step runs, by its name."""
    module = module if isinstance(module, nn.Module) else Function(module)
    given = torch.randn(4, 8) if x is None else x
    decisions = placed(module, given, rules).decisions
    return {name: decision.execution.value for name, decision in decisions.items()}


def test_what_stands_between_layers_follows_them() -> None:
    """A sum, a concatenation and an activation between two layers run in integers."""
    found = executions(
        lambda m, x: m.b(torch.cat([F.relu(m.a(x)), torch.sigmoid(m.a(x))], -1)[:, :8])
    )
    assert set(found.values()) == {"integer"}


def test_what_nobody_reads_as_integers_stays_float() -> None:
    """The last activation of a model would be quantized for nothing."""
    module = Function(lambda m, x: torch.sigmoid(m.a(x)))
    decisions = placed(module, torch.randn(4, 8)).decisions
    assert decisions["linear"].execution is Execution.INTEGER
    assert decisions["sigmoid"].execution is Execution.FLOAT
    assert decisions["sigmoid"].reason == "nothing reads its result as integers"


def test_a_float_operand_keeps_a_sum_in_float() -> None:
    """The residual of a transformer, between a layer norm and a linear layer, is not rounded."""
    module = Function(lambda m, x: m.b(F.layer_norm(m.a(F.layer_norm(x, (8,))) + x.exp(), (8,))))
    decisions = placed(module, torch.randn(4, 8)).decisions
    assert decisions["add"].execution is Execution.FLOAT
    assert "exp" in decisions["add"].reason
    assert decisions["layer_norm"].reason == "layer_norm has no integer form"


def test_a_chain_of_light_steps_is_dropped_as_a_whole() -> None:
    """Where the first cannot be in integers, those that read it cannot either."""
    found = executions(lambda m, x: m.b((torch.softmax(m.a(x), -1) + m.a(x)).relu() * 2))
    assert found["softmax"] == found["add"] == found["relu"] == found["mul"] == "float"
    assert found["linear"] == found["linear_1"] == found["linear_2"] == "integer"


def test_moves_share_the_scale_of_what_they_move() -> None:
    """A view, a slice, a transposition and zeros around have the qparams of their input."""
    module = Function(lambda m, x: m.b(F.pad(m.a(x).view(2, 2, 8)[:, 1:].transpose(0, 1), (0, 0))))
    placement = placed(module, torch.randn(4, 8))
    assert placement.shared["view"] == "linear"
    assert set(placement.observe) - set(placement.shared) == {"x", "linear"}


def test_parts_of_a_concatenation_take_its_scale() -> None:
    """Where a part is for the concatenation alone; one that others read keeps its own."""
    module = Function(lambda m, x: _mixed(m, F.relu(m.a(x)), m.a(x)))
    placement = placed(module, torch.randn(4, 8))
    assert placement.shared["linear_1"] == "cat"
    assert "relu" not in placement.shared


def _mixed(module: Any, one: Tensor, other: Tensor) -> Tensor:
    both = module.b(torch.cat([one, other], 0))
    result: Tensor = both + torch.cat([module.b(one), both[4:]], 0)
    return result


def test_products_of_two_activations_run_in_integers() -> None:
    """Both operands of a matmul are codes."""
    placement = placed(Function(lambda m, x: m.a(x) @ m.b(x).t()), torch.randn(4, 8))
    assert placement.decisions["matmul"].execution is Execution.INTEGER
    assert {"linear", "t"} <= set(placement.observe) | set(placement.shared)


def test_a_matrix_parameter_is_the_weight_of_a_product() -> None:
    """``x @ w`` is a linear layer whose weight lies the other way round."""
    placement = placed(Function(lambda m, x: x @ m.w), torch.randn(4, 8))
    assert placement.weights == {"w": WEIGHT.with_granularity(hs.PerChannel(1))}
    assert "w" not in placement.observe


def test_the_transpose_of_a_parameter_is_a_weight_as_it_lies() -> None:
    """``x @ w.t()`` is a linear layer, whose weight is stored as that of one."""
    module, x = Function(lambda m, x: x @ m.w.t()), torch.randn(4, 8)
    assert placed(module, x).weights == {"w": WEIGHT}
    result = hs.ptq.quantize(module, x)
    assert result.summary.equality["torch"].startswith("equal")
    torch.testing.assert_close(result.model(x), module(x), atol=0.2, rtol=0.1)


def test_a_weight_that_is_cut_is_quantized_as_a_whole() -> None:
    """The projections of attention are slices of one parameter."""
    module = Function(lambda m, x: F.linear(x, m.w.chunk(2)[1]))
    assert list(placed(module, torch.randn(4, 8)).weights) == ["w"]


def test_a_weight_made_of_the_input_stays_float() -> None:
    """There is nothing to store as integers."""
    module = Function(lambda m, x: F.linear(x, x))
    decision = placed(module, torch.randn(4, 8)).decisions["linear"]
    assert decision.reason == "its weight is computed from the input"


@pytest.mark.parametrize("match", ["a", nn.Linear, torch.ops.aten.linear, F.linear, "*"])
def test_rules_match_by_name_type_operator_and_glob(match: Any) -> None:
    """A rule says which steps it means, in any of these ways."""
    rules = [hs.Rule(match, keep_float=True), *recipes.static_int8()]
    found = executions(lambda m, x: m.a(x), rules=rules)
    assert found["linear"] == "float"


def test_a_rule_for_a_module_takes_all_inside() -> None:
    """By its name, its type or itself."""
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 8))
    x = torch.randn(4, 8)
    for match in ("0", model[0]):
        found = executions(model, x, [hs.Rule(match, keep_float=True), *recipes.static_int8()])
        assert found == {"linear": "float", "relu": "float", "linear_1": "integer"}


def test_the_first_rule_decides() -> None:
    """A later rule for the same step is not looked at."""
    edge = hs.QSpec(hs.uint8)
    rules = [hs.Rule("a", weight=WEIGHT), hs.Rule("*", weight=WEIGHT, input=edge)]
    found = executions(lambda m, x: m.b(m.a(x)), rules=rules)
    assert found == {"linear": "weight-only", "linear_1": "integer"}


@pytest.mark.parametrize(
    ("match", "hint"),
    [
        ("aa", "the nearest names are a"),
        (nn.Conv2d, "the model has Function, Linear"),
        (torch.ops.aten.softmax, r"matches nothing.*recipe \+ rule"),
    ],
)
def test_a_rule_that_matches_nothing_is_an_error(match: Any, hint: str) -> None:
    """With the nearest names, or what there is."""
    module = Function(lambda m, x: m.a(x))
    matcher = Matcher([hs.Rule(match, keep_float=True)], module)
    program = normalized(export(module, (torch.randn(4, 8),)))
    place(program, module, matcher)
    with pytest.raises(ArgumentError, match=hint):
        matcher.check()
    matcher.check(optional=matcher.rules)


def test_a_format_that_does_not_fit_a_weight_is_named() -> None:
    """A group size that does not divide keeps the layer in float, and says so."""
    rules = list(recipes.weight_only(hs.int4, group_size=3))
    decision = placed(Function(lambda m, x: m.a(x)), torch.randn(4, 8), rules).decisions["linear"]
    assert decision.execution is Execution.FLOAT
    assert "its weight does not fit the format" in decision.reason


def test_a_function_has_no_integers() -> None:
    """A quantizer without a format cannot be shipped."""
    rules = [hs.Rule("a", weight=torch.sign, input=hs.uint8)]
    with pytest.raises(ArgumentTypeError, match="needs a QSpec, an integer dtype or an observer"):
        placed(Function(lambda m, x: m.a(x)), torch.randn(4, 8), rules)


def test_steps_that_depend_on_parameters_alone_are_left_alone() -> None:
    """They run once, so that there is nothing to gain."""
    module = Function(lambda m, x: F.linear(x, (m.w + m.w).relu()))
    decisions = placed(module, torch.randn(4, 8)).decisions
    assert decisions["add"].reason == "it depends on parameters alone and runs once"
    assert decisions["linear"].execution is Execution.INTEGER


@pytest.mark.parametrize(("value", "runs"), [(0.0, "integer"), (2.0, "float"), (-9.0, "float")])
def test_padding_with_another_value_than_zero_stays_float(value: float, runs: str) -> None:
    """The scale of what is padded need not reach the value that it is padded with."""
    found = executions(lambda m, x: m.b(F.pad(m.a(x)[:, :6], (1, 1), value=value)))
    assert found["pad"] == runs


def test_padding_for_a_maximum_moves_codes() -> None:
    """Minus infinity loses to every value, and the lowest code to every code."""
    images = torch.randn(2, 3, 6, 6)
    conv = nn.Conv2d(3, 3, 1)
    function = Function(
        lambda m, x: m.c(F.max_pool2d(F.pad(m.c(x), (0, 1, 0, 1), value=float("-inf")), 2))
    )
    function.c = conv
    assert executions(function, images)["pad"] == "integer"


LAYERS = {
    "linear": (nn.Linear(8, 8), (4, 8)),
    "conv": (nn.Conv2d(6, 6, 3), (2, 6, 5, 5)),
    "conv_transpose": (nn.ConvTranspose2d(6, 8, 3, groups=2), (2, 6, 5, 5)),
    "lstm": (nn.LSTM(8, 8), (3, 2, 8)),
}
OUTPUTS = {"conv_transpose": hs.PerChannel(1)}
ROWS = {"conv": hs.PerChannel(0), "conv_transpose": hs.PerChannel(0)}


def reason(name: str, weight: Any, given: Any) -> str:
    """Why a layer is left in float when its weight and its input have such scales."""
    layer, shape = LAYERS[name]
    rule = hs.Rule(
        "*", weight=hs.QSpec(hs.int8, weight, symmetric=True), input=hs.QSpec(hs.uint8, given)
    )
    decisions = placed(layer, torch.randn(shape), [rule]).decisions
    return next(each.reason for step, each in decisions.items() if step.startswith(name))


@pytest.mark.parametrize("weight", [hs.PerChannel(0), hs.PerChannel(1), hs.PerGroup(1, 2)])
@pytest.mark.parametrize("name", LAYERS)
def test_scales_that_change_inside_a_sum_leave_a_layer_in_float(name: str, weight: Any) -> None:
    """A scale for each input channel has no place in an integer sum: wrong numbers, or a crash."""
    served = weight == OUTPUTS.get(name, hs.PerChannel(0)) or (
        name == "linear" and weight == hs.PerGroup(1, 2)
    )
    found = reason(name, weight, ROWS.get(name, hs.PerToken()))
    assert found == "" if served else "its sums need a weight with one scale" in found


@pytest.mark.parametrize("given", [hs.PerChannel(1), hs.PerToken(), hs.PerChannel(0)])
@pytest.mark.parametrize("name", LAYERS)
def test_rows_are_those_of_the_operator(name: str, given: Any) -> None:
    """Linear layers take scales for each row, convolutions for each sample."""
    found = reason(name, OUTPUTS.get(name, hs.PerChannel(0)), given)
    served = given == ROWS.get(name, hs.PerToken())
    assert found == "" if served else "its sums need an input with one scale" in found
