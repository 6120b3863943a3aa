"""The integer form of each kind of operator: its name, and what it is given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from halfstep.graph.edges import Edge
from halfstep.graph.kinds import clamp_bounds, kind_of
from halfstep.graph.program import Step
from halfstep.graph.regions import Region
from halfstep.graph.support import Support
from halfstep.graph.tables import PER_CHANNEL, table_of
from halfstep.graph.trees import Value
from halfstep.graph.writer import Writer

Call: TypeAlias = tuple[str, tuple[Any, ...]]
_VIEWS = ("aten.view.default", "aten._unsafe_view.default")


@dataclass(frozen=True)
class Context:
    """What is being converted, and where it is written to."""

    support: Support
    writer: Writer

    def codes(self, value: Value) -> tuple[Value, Edge]:
        """A value as codes, and their format."""
        edge = self.support.quantized.edges[value.name]
        return self.writer.codes(value.name, edge), edge


def weight_of(context: Context, step: Step) -> Value:
    """The weight of a contraction as integers, with the output's channels first."""
    value: Value = step.args[1]
    flow, spec = context.support.flow, context.support.quantized.decisions[step.name].weight
    turned = flow.turned(value.name)
    if turned is not None and turned in context.support.quantized.weights:
        return Value(turned)
    if spec is not None:
        root = flow.weight_root(value.name)
        value = context.writer.weight(value.name, root, flow.maker, spec)
    kind = kind_of(step)
    if kind is None or kind.name != "matmul":
        return value
    return context.writer.add(f"{value.name}_t", "aten.t.default", (value,), step)


def _contraction(context: Context, region: Region, out: Edge | None) -> Call:
    """Codes, weight, bias, geometry, and what is fused."""
    step = region.main
    kind = kind_of(step)
    residual: tuple[Any, Any] = (None, None)
    if region.residual is not None:
        residual = context.codes(region.residual)
    name, rest = "linear", (None,)
    if kind is not None and kind.name != "matmul":
        name, rest = kind.name, step.args[2:]
    x, weight = context.codes(step.args[0]), weight_of(context, step)
    return f"int.{name}", (*x, weight, *rest, *residual, region.activation, out)


def _matmul(context: Context, region: Region, out: Edge | None) -> Call:
    a, b = region.main.args[:2]
    if b.name in context.support.flow.static:
        return _contraction(context, region, out)
    return "int.matmul", (*context.codes(a), *context.codes(b), out)


def _sum(context: Context, region: Region, out: Edge | None) -> Call:
    kind = kind_of(region.main)
    a, b = map(context.codes, region.main.args[:2])
    name = "" if kind is None else kind.name
    return f"int.{name}", (*a, *b, region.activation, out)


def _cat(context: Context, region: Region, out: Edge | None) -> Call:
    parts, edges = zip(*map(context.codes, region.main.args[0]), strict=True)
    return "int.cat", (parts, edges, region.main.args[1], out)


def _avg_pool(context: Context, region: Region, out: Edge | None) -> Call:
    kernel, stride, *rest = region.main.args[1:]
    divisor = rest[3] if len(rest) > 3 else None
    x = context.codes(region.main.args[0])
    return "int.avg_pool", (*x, kernel, stride or kernel, *rest[:3], divisor, out)


def _adaptive_avg_pool(context: Context, region: Region, out: Edge | None) -> Call:
    return "int.adaptive_avg_pool", (*context.codes(region.main.args[0]), region.main.args[1], out)


def _mean(context: Context, region: Region, out: Edge | None) -> Call:
    x, dims, keepdim = region.main.args[:3]
    return "int.mean", (*context.codes(x), dims, keepdim, out)


def _max_pool(context: Context, region: Region, out: Edge | None) -> Call:
    kernel, stride, *rest = region.main.args[1:]
    return "int.max_pool", (context.codes(region.main.args[0])[0], kernel, stride or kernel, *rest)


def _move(context: Context, region: Region, out: Edge | None) -> Call:
    """The same move on codes, which may lie in memory in another order, padded with codes."""
    codes, edge = context.codes(region.main.args[0])
    op, rest = region.main.op, region.main.args[1:]
    if op in _VIEWS:
        op = "aten.reshape.default"
    elif op == "aten.constant_pad_nd.default":
        rest = (rest[0], edge.code_of(float(rest[1])))
    return op, (codes, *rest)


def _clamp(context: Context, region: Region, out: Edge | None) -> Call | None:
    """A clamp of codes that keep their scale, or a table."""
    codes, edge = context.codes(region.main.args[0])
    if out != edge:
        return _table(context, region, out)
    low, high = clamp_bounds(region.main)
    least = edge.qmin if low is None else edge.code_of(low)
    most = edge.qmax if high is None else edge.code_of(high)
    return "int.clamp", (codes, least, most)


def _table(context: Context, region: Region, out: Edge | None) -> Call | None:
    step = region.main
    if out is None:
        return None
    codes, edge = context.codes(step.args[0])
    if step.op in PER_CHANNEL:
        if edge.spec.dtype.bits > 8:
            return None
        args = (*(context.writer.floats(value.name) for value in step.args[1:]), edge, out)
        table = context.writer.add(f"{step.name}_table", PER_CHANNEL[step.op], args, step)
        return "int.table", (codes, table)
    made = table_of(step, edge, out)
    if made is None:
        return None
    return "int.table", (codes, context.writer.constant(f"{step.name}_table", made))


FORMS: dict[str, Callable[[Context, Region, Edge | None], Call | None]] = {
    "linear": _contraction,
    "conv": _contraction,
    "conv_transpose": _contraction,
    "matmul": _matmul,
    "add": _sum,
    "sub": _sum,
    "mul": _sum,
    "cat": _cat,
    "avg_pool": _avg_pool,
    "adaptive_avg_pool": _adaptive_avg_pool,
    "mean": _mean,
    "max_pool": _max_pool,
    "move": _move,
    "clamp": _clamp,
    "table": _table,
}
