"""Kernels for recurrent layers: the products and the quantizing of rows in every time step.

The gates are the formulas of ``numerics.recurrent``, so the numbers are the same, bit for bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halfstep.engines.bind_products import Given, RowProduct, row_product
from halfstep.engines.bind_rows import quantizer
from halfstep.graph.frozen import Bound, Lookup
from halfstep.numerics import native_gates, recurrent
from halfstep.numerics.native_codes import Rows
from halfstep.numerics.native_products import Geometry
from halfstep.numerics.recurrent import Gates, State
from halfstep.spec import QSpec


@dataclass(frozen=True)
class Direction:
    """The products of one direction of one layer; ``projection`` where there is one."""

    inputs: RowProduct
    hidden: RowProduct
    projection: RowProduct | None


@dataclass(frozen=True)
class Layers:
    """Layers of one or two directions, ready to run.

    sizes: of the states, the last dimension of each.
    """

    gates: Gates
    quantize: Callable[[Tensor], Rows]
    layers: tuple[tuple[Direction, ...], ...]
    sizes: tuple[int, ...]
    batch_first: bool

    def __call__(self, x: Tensor, *given: Tensor | None) -> tuple[Tensor, ...]:
        """The outputs and the last states, as the step returns them."""
        x = x.float().transpose(0, 1) if self.batch_first else x.float()
        count = len(self.layers) * len(self.layers[0])
        states = [
            x.new_zeros((count, x.shape[1], size)) if h is None else h.float().contiguous()
            for h, size in zip(given, self.sizes, strict=True)
        ]
        last: list[State] = []
        for directions in self.layers:
            outputs = []
            for backwards, direction in enumerate(directions):
                own = tuple(state[len(last)] for state in states)
                y, after = self._run(direction, x.flip(0) if backwards else x, own)
                outputs.append(y.flip(0) if backwards else y)
                last.append(after)
            x = torch.cat(outputs, -1)
        ends = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        return (x.transpose(0, 1).contiguous() if self.batch_first else x, *ends)

    def _run(self, direction: Direction, x: Tensor, state: State) -> tuple[Tensor, State]:
        outputs = []
        for step in direction.inputs(self.quantize(x)):
            h, *rest = self.gates(step, direction.hidden(self.quantize(state[0])), state)
            if direction.projection is not None:
                h = direction.projection(self.quantize(h))
            state = (h, *rest)
            outputs.append(h)
        return torch.stack(outputs) if outputs else x.new_empty((0, *state[0].shape)), state


def _product(weight: Any, bias: Any, lookup: Lookup) -> RowProduct | None:
    return row_product(Given(weight, bias, lookup), Geometry(), 1, None, is_conv=False)


def _direction(flat: Sequence[Any], lookup: Lookup, *, bias: bool) -> Direction | None:
    """From w_ih, w_hh, two biases or none, w_hr or none."""
    w_ih, w_hh, *rest = flat
    biases = (rest.pop(0), rest.pop(0)) if bias else (None, None)
    inputs, hidden = _product(w_ih, biases[0], lookup), _product(w_hh, biases[1], lookup)
    projection = _product(rest[0], None, lookup) if rest else None
    if inputs is None or hidden is None or (rest and projection is None):
        return None
    return Direction(inputs, hidden, projection)


def _layers(
    gates: Gates, states: int, weights: Sequence[Any], options: Sequence[Any], lookup: Lookup
) -> Layers | None:
    """The layers of a step, or None where a weight or the format of rows has no kernel."""
    bias, count, bidirectional, batch_first, spec = options
    quantize = quantizer(spec) if isinstance(spec, QSpec) else None
    directions = count * (1 + bidirectional)
    size = len(weights) // directions
    each = [
        _direction(weights[first : first + size], lookup, bias=bias)
        for first in range(0, len(weights), size)
    ]
    found = [direction for direction in each if direction is not None]
    if quantize is None or len(found) < directions:
        return None
    grouped = [
        found[at : at + directions // count] for at in range(0, directions, directions // count)
    ]
    hidden = lookup(weights[1]).shape
    sizes = (hidden[1], hidden[0] // 4)[:states]
    return Layers(gates, quantize, tuple(map(tuple, grouped)), sizes, batch_first)


def lstm(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.lstm."""
    x, h, c, weights, *options = args
    layers = _layers(native_gates.lstm_gates, 2, weights, options, lookup)
    return None if layers is None else Bound(layers, (x, h, c))


def gru(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.gru."""
    x, h, weights, *options = args
    layers = _layers(native_gates.gru_gates, 1, weights, options, lookup)
    return None if layers is None else Bound(layers, (x, h))


def rnn(args: tuple[Any, ...], lookup: Lookup) -> Bound | None:
    """int.rnn."""
    x, h, weights, *options, relu, spec = args
    gates = recurrent.relu_gates if relu else native_gates.tanh_gates
    layers = _layers(gates, 1, weights, (*options, spec), lookup)
    return None if layers is None else Bound(layers, (x, h))


BINDERS = {"int.lstm": lstm, "int.gru": gru, "int.rnn": rnn}
