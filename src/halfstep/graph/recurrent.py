"""Recurrent layers as single operators, so that an exported graph takes any sequence length.

PyTorch traces ``aten.lstm`` and its kin step by step, which fixes the number of steps. While a
model is exported, the forward of every ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` calls one of

    halfstep::lstm(x, h, c, weights, ...) -> (y, h, c)
    halfstep::gru(x, h, weights, ...) -> (y, h)
    halfstep::rnn(x, h, weights, ..., relu) -> (y, h)

instead. They run torch's own kernels, so without gradients they return the layer's own bits. When
gradients are recorded, torch takes another kernel for its layer, whose last bit may differ; the
operators' backward runs the forward once more.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from halfstep.errors import ArgumentTypeError
from halfstep.numerics.ops import LIBRARY

Outputs: TypeAlias = tuple[Tensor, ...]
_OPTIONS = "bool bias, int layers, bool bidirectional, bool batch_first"
_LSTM_STATES = 2


def _zeros(x: Tensor, size: int, options: Sequence[Any]) -> Tensor:
    _, layers, bidirectional, batch_first = options[:4]
    batch = x.shape[0 if batch_first else 1]
    return x.new_zeros((layers * (1 + bidirectional), batch, size))


def _run(
    kind: str, x: Tensor, states: Sequence[Tensor | None], weights: list[Tensor], options: Any
) -> Outputs:
    """Torch's own layer, without dropout; a missing state is zeros."""
    recurrent = weights[1]  # (gates * hidden, hidden or projected)
    sizes = (recurrent.shape[1], recurrent.shape[0] // 4)
    full = [
        _zeros(x, size, options) if h is None else h for h, size in zip(states, sizes, strict=False)
    ]
    bias, layers, bidirectional, batch_first, *relu = options
    training = torch.is_grad_enabled() and any(w.requires_grad for w in (x, *weights))
    fixed = (bias, layers, 0.0, training, bidirectional, batch_first)
    if kind == "lstm":
        return torch.lstm(x, full, weights, *fixed)
    if kind == "gru":
        return torch.gru(x, full[0], weights, *fixed)
    function = torch.rnn_relu if relu[0] else torch.rnn_tanh
    return function(x, full[0], weights, *fixed)


def _shapes(kind: str, x: Tensor, weights: list[Tensor], options: Any) -> Outputs:
    """Empty outputs; no size is turned into a number."""
    directions, recurrent = 1 + options[2], weights[1]
    y = x.new_empty((x.shape[0], x.shape[1], directions * recurrent.shape[1]))
    h = torch.empty_like(_zeros(x, recurrent.shape[1], options))
    if kind != "lstm":
        return y, h
    return y, h, torch.empty_like(_zeros(x, recurrent.shape[0] // 4, options))


class _Layer:
    """The implementations of one operator, for a given number of states."""

    def __init__(self, kind: str, states: int) -> None:
        self.kind, self.states = kind, states

    def split(self, inputs: Sequence[Any]) -> tuple[Tensor, Sequence[Tensor | None], Any, Any]:
        """The operator's arguments as x, states, weights, options."""
        weights = 1 + self.states
        return inputs[0], inputs[1:weights], list(inputs[weights]), inputs[weights + 1 :]

    def forward(self, *inputs: Any) -> Outputs:
        """Run the layer."""
        return _run(self.kind, *self.split(inputs))

    def fake(self, *inputs: Any) -> Outputs:
        """Say what the layer returns."""
        x, _, weights, options = self.split(inputs)
        return _shapes(self.kind, x, weights, options)

    def setup(self, ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
        """Keep the inputs for backward."""
        x, states, weights, ctx.options = self.split(inputs)
        ctx.save_for_backward(x, *states, *weights)

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        """The gradients of x, the states and the weights."""
        saved: list[Any] = [
            None if value is None else value.detach().requires_grad_()
            for value in ctx.saved_tensors
        ]
        x, states, weights = saved[0], saved[1 : 1 + self.states], saved[1 + self.states :]
        with torch.enable_grad():
            outputs = _run(self.kind, x, states, weights, ctx.options)
        wanted = [value for value in saved if value is not None]
        found = iter(torch.autograd.grad(outputs, wanted, gradients, allow_unused=True))
        every = [None if value is None else next(found) for value in saved]
        lists = every[: 1 + self.states], every[1 + self.states :]
        return (*lists[0], lists[1], *(None for _ in ctx.options))


def _register(kind: str, schema: str, states: int) -> Callable[..., Outputs]:
    layer = _Layer(kind, states)
    LIBRARY.define(f"{kind}({schema}")
    LIBRARY.impl(kind, layer.forward, "CompositeExplicitAutograd")
    torch.library.register_fake(f"halfstep::{kind}", layer.fake, lib=LIBRARY)
    torch.library.register_autograd(
        f"halfstep::{kind}", layer.backward, setup_context=layer.setup, lib=LIBRARY
    )
    op: Callable[..., Outputs] = getattr(torch.ops.halfstep, kind).default
    return op


lstm = _register(
    "lstm",
    f"Tensor x, Tensor? h, Tensor? c, Tensor[] weights, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
    _LSTM_STATES,
)
gru = _register("gru", f"Tensor x, Tensor? h, Tensor[] weights, {_OPTIONS}) -> (Tensor, Tensor)", 1)
rnn = _register(
    "rnn",
    f"Tensor x, Tensor? h, Tensor[] weights, {_OPTIONS}, bool relu) -> (Tensor, Tensor)",
    1,
)


@contextmanager
def as_operators(model: nn.Module) -> Iterator[None]:
    """Inside, the recurrent layers of the model call the operators above; restored on exit.

    A layer whose class has a forward of its own is left alone.
    """
    forwards = {nn.LSTM.forward: lstm, nn.GRU.forward: gru, nn.RNN.forward: rnn}
    replaced = [
        (module, op)
        for module in model.modules()
        if "forward" not in vars(module)
        and (op := forwards.get(type(module).forward)) is not None
        and isinstance(module, nn.RNNBase)
    ]
    try:
        for module, op in replaced:
            vars(module)["forward"] = partial(_forward, module, op)
        yield
    finally:
        for module, _ in replaced:
            vars(module).pop("forward", None)


def _forward(
    module: nn.RNNBase,
    op: Callable[..., Outputs],
    input: Tensor,  # noqa: A002  (torch's name, which callers may use)
    hx: Any = None,
) -> tuple[Tensor, Any]:
    """The forward of a recurrent layer, by its operator."""
    x = input
    if isinstance(x, PackedSequence):
        raise ArgumentTypeError(
            "a recurrent layer is called with a packed sequence, whose lengths are data: "
            "pad to one length instead"
        )
    batched = x.ndim == 3
    states = [] if hx is None else list(hx) if op is lstm else [hx]
    if not batched:
        x = x.unsqueeze(0 if module.batch_first else 1)
        states = [state.unsqueeze(1) for state in states]
    y, *after = _layers(module, op, x, states)
    if not batched:
        y = y.squeeze(0 if module.batch_first else 1)
        after = [state.squeeze(1) for state in after]
    return y, tuple(after) if op is lstm else after[0]


def _layers(
    module: nn.RNNBase, op: Callable[..., Outputs], x: Tensor, states: list[Tensor]
) -> Outputs:
    """All layers in one call, or with dropout between them one by one, as torch runs them."""
    count = _LSTM_STATES if op is lstm else 1
    given: Sequence[Any] = states or [None] * count
    weights = [getattr(module, name) for name in module._flat_weights_names]
    relu = (module.mode == "RNN_RELU",) if op is rnn else ()
    shared = (module.bidirectional, module.batch_first, *relu)
    dropout = module.dropout if module.training else 0.0
    if dropout == 0 or module.num_layers == 1:
        return op(x, *given, weights, module.bias, module.num_layers, *shared)
    directions = 1 + module.bidirectional
    per_layer = len(weights) // module.num_layers
    after: list[Outputs] = []
    for layer in range(module.num_layers):
        rows = slice(layer * directions, (layer + 1) * directions)
        own = weights[layer * per_layer : (layer + 1) * per_layer]
        part = [None if state is None else state[rows] for state in given]
        x, *last = op(F.dropout(x, dropout) if layer else x, *part, own, module.bias, 1, *shared)
        after.append(tuple(last))
    return x, *(torch.cat(parts) for parts in zip(*after, strict=True))
