"""Layers captured one by one, without data: with inputs that are made from their attributes."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError
from halfstep.flows.parts import Part
from halfstep.graph.capture import Region, capture
from halfstep.graph.program import Input, Program, Step
from halfstep.graph.run import find
from halfstep.graph.trees import Branch, Value

_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_CALLED = (*_CONVS, *_TRANSPOSED, nn.LSTM, nn.GRU, nn.RNN, nn.EmbeddingBag)
_LAYERS = (nn.Linear, nn.Embedding, *_CALLED)
# Steps that bring several values.
_TUPLES = ("halfstep.", "aten.embedding_bag.")
_COMPUTED = (
    "its weight is computed from other parameters: remove the parametrization first to quantize it"
)


def leaf_regions(model: nn.Module) -> tuple[list[Part], list[Region]]:
    """The programs of every layer that has weights to quantize, and the layers that stay Python."""
    parts: list[Part] = []
    regions: list[Region] = []
    inside: set[nn.Module] = set()
    for path, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            inside.add(module.out_proj)
            parts.append(Part(path, _attention(module), runs=False))
        elif module not in inside and (isinstance(module, _LAYERS) or _has_weights(module)):
            region = _region(path, module)
            regions.append(region)
            parts += [Part(path, program) for program in region.programs]
    return parts, regions


def dtypes_in(model: nn.Module, part: Part) -> dict[str, str]:
    """The float dtypes of the values of a layer's program where not float32: that of its weights.

    >>> import torch
    >>> from halfstep.flows.leaves import dtypes_in, leaf_regions
    >>> model = torch.nn.Linear(2, 1).half()
    >>> dtypes_in(model, leaf_regions(model)[0][0])
    {'linear': 'float16'}
    """
    found = {_dtype(find(model, part.at(name))) for name in part.program.parameters}
    if len(found) != 1 or found == {"float32"}:
        return {}
    (dtype,) = found
    return {step.name: dtype for step in part.program.steps if not step.op.startswith(_TUPLES)}


def _has_weights(module: nn.Module) -> bool:
    return bool(module._parameters) and not any(True for _ in module.children())


def _region(path: str, module: nn.Module) -> Region:
    try:
        programs = _programs(module)
    except ArgumentError as error:
        return Region(path, reason=str(error))
    return Region(path, programs)


def _programs(module: nn.Module) -> tuple[Program, ...]:
    """One program for each kind of arguments of a layer.

    Raises ``ArgumentError`` with the reason why there is none.
    """
    if not isinstance(module, _LAYERS):
        raise ArgumentError("a layer of this kind has no weights that are kept as integers")
    if not isinstance(module._parameters.get(_first_weight(module)), Tensor):
        raise ArgumentError(_COMPUTED)
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
        raise ArgumentError("max_norm changes its weight whenever it is called")
    if isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward:
        return (_linear(module),)
    if type(module).forward is nn.Embedding.forward:
        return tuple(_embedding(dtype) for dtype in ("int64", "int32"))
    if _is_plain_convolution(module):
        return _convolution(module, batched=True), _convolution(module, batched=False)
    return _captured(module)


def _first_weight(module: nn.Module) -> str:
    return "weight_ih_l0" if isinstance(module, nn.RNNBase) else "weight"


def _program(given: Input, steps: tuple[Step, ...], parameters: dict[str, str]) -> Program:
    arguments = Branch(dict, (given.value.name,), (given.value,))
    return Program((given,), arguments, Value(steps[-1].name), steps, parameters)


def _weight_and_bias(module: nn.Module) -> tuple[dict[str, str], Value, Value | None]:
    if module._parameters.get("bias") is None:
        return {"weight": "weight"}, Value("weight"), None
    return {"weight": "weight", "bias": "bias"}, Value("weight"), Value("bias")


def _dtype(weight: Tensor) -> str:
    return str(weight.dtype).removeprefix("torch.")


def _linear(module: nn.Linear) -> Program:
    """A linear layer, for any number of dimensions."""
    x = Value("input")
    parameters, weight, bias = _weight_and_bias(module)
    step = Step("linear", "aten.linear.default", (x, weight, bias))
    return _program(Input(x, _dtype(module.weight), None), (step,), parameters)


def _embedding(dtype: str) -> Program:
    """An embedding, for any number of dimensions."""
    x, weight = Value("input"), Value("weight")
    step = Step("embedding", "aten.embedding.default", (weight, x))
    return _program(Input(x, dtype, None), (step,), {"weight": "weight"})


def _is_plain_convolution(module: nn.Module) -> TypeGuard[nn.modules.conv._ConvNd]:
    """A convolution with torch's own forward that pads with zeros."""
    return any(
        isinstance(module, kind)
        and type(module).forward is kind.forward
        and type(module)._conv_forward is kind._conv_forward
        and module.padding_mode == "zeros"
        for kind in _CONVS
    )


def _convolution(module: nn.modules.conv._ConvNd, *, batched: bool) -> Program:
    """A convolution of a batch, or of one image."""
    x, ndim = Value("input"), len(module.kernel_size)
    parameters, weight, bias = _weight_and_bias(module)
    form = "padding" if isinstance(module.padding, str) else "default"
    options = (module.stride, module.padding, module.dilation, module.groups)
    conv = Step("conv", f"aten.conv{ndim}d.{form}", (x, weight, bias, *options))
    given = Input(x, _dtype(module.weight), ndim + 1 + batched)
    return _program(given, (conv,), parameters)


def _attention(module: nn.MultiheadAttention) -> Program:
    """The projections of attention, as steps; for their weights only: no module runs it."""
    names = ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"]
    found = [name for name in names if _parameter(module, name) is not None]
    x = Value("query")
    values = {name.replace(".", "_"): name for name in found}
    steps = tuple(
        Step(
            f"{value}_linear",
            "aten.linear.default",
            (x, Value(value), None),
            source="out_proj" if "." in name else "",
        )
        for value, name in values.items()
    )
    given = Input(x, _dtype(module.out_proj.weight), None)
    outputs = tuple(Value(step.name) for step in steps)
    return Program((given,), Branch(dict, ("query",), (x,)), outputs, steps, values)


def _parameter(module: nn.Module, path: str) -> Tensor | None:
    owner, _, name = path.rpartition(".")
    return module.get_submodule(owner)._parameters.get(name)


# --- Layers that are traced with inputs made from their attributes --------------------------------


def _captured(module: nn.Module) -> tuple[Program, ...]:
    """The programs for all the ways in which such a layer is called."""
    programs: list[Program] = []
    for args in _calls(module):
        try:
            (region, *_) = capture(module, args).regions
        except Exception as error:  # noqa: BLE001  (a subclass may fail in any way of its own)
            region = Region("", reason=f"{type(error).__name__}: {error}")
        if not region.programs:
            raise ArgumentError(
                f"{type(module).__name__} could not be called with an input made from its "
                f"attributes: {region.reason}. Give batches to capture it as it is used"
            )
        programs += region.programs
    return tuple(programs)


def _calls(module: nn.Module) -> Iterator[tuple[Any, ...]]:
    """Arguments of every kind that the layer takes; batches of 3."""
    make: Callable[..., Tensor] = next(iter(module.parameters())).new_ones
    match module:
        case nn.Linear():
            yield from ((make(*shape, module.in_features),) for shape in ((3,), (3, 4)))
        case nn.Embedding():
            yield from ((torch.zeros(*shape, dtype=torch.long),) for shape in ((3,), (3, 4)))
        case nn.EmbeddingBag():
            yield from _bag_calls(module, make)
        case nn.RNNBase():
            yield from _recurrent_calls(module, make)
        case nn.modules.conv._ConvNd():
            yield from _convolution_calls(module, make)


def _convolution_calls(
    module: nn.modules.conv._ConvNd, make: Callable[..., Tensor]
) -> Iterator[tuple[Tensor]]:
    """A batch, and for a class of torch's own one image; larger than the kernel."""
    reach = zip(module.kernel_size, module.dilation, module.stride, strict=True)
    sizes = [size * dilation + 2 * stride + 3 for size, dilation, stride in reach]
    yield (make(3, module.in_channels, *sizes),)
    if type(module) in (*_CONVS, *_TRANSPOSED):
        yield (make(module.in_channels, *sizes),)


def _bag_calls(
    module: nn.EmbeddingBag, make: Callable[..., Tensor]
) -> Iterator[tuple[Tensor | None, ...]]:
    for dtype in (torch.int64, torch.int32):
        bags, flat = torch.zeros(3, 4, dtype=dtype), torch.zeros(12, dtype=dtype)
        offsets = torch.tensor([0, 4, 8, 12][: 3 + module.include_last_offset], dtype=dtype)
        yield (bags,)
        yield flat, offsets
        if module.mode == "sum":
            yield bags, None, make(3, 4)
            yield flat, offsets, make(12)


def _recurrent_calls(module: nn.RNNBase, make: Callable[..., Tensor]) -> Iterator[tuple[Any, ...]]:
    """With and without a batch, with and without states."""
    rows = module.num_layers * (1 + module.bidirectional)
    sizes = [module.proj_size or module.hidden_size, module.hidden_size]
    for batch, states in itertools.product((3, 0), (False, True)):
        steps = ((batch, 5) if module.batch_first else (5, batch)) if batch else (5,)
        x = make(*steps, module.input_size)
        after = [make(*((rows, batch, n) if batch else (rows, n))) for n in sizes]
        state = tuple(after) if isinstance(module, nn.LSTM) else after[0]
        yield (x, state) if states else (x,)
