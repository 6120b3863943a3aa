"""The integer program while it is written: which values are there as codes, which as floats."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from halfstep.graph.edges import Edge
from halfstep.graph.names import Names
from halfstep.graph.program import Program, Step, TorchName
from halfstep.graph.quantized import Quantized
from halfstep.graph.trees import Value, mapped
from halfstep.spec import QSpec


class Writer:
    """Collects steps; a value that is wanted as codes or as floats is converted once."""

    def __init__(self, quantized: Quantized) -> None:
        self.quantized = quantized
        program = quantized.program
        self.steps: list[Step] = []
        self.constants: dict[str, Tensor] = dict(program.constants)
        self._names = Names.of(program)
        self._codes: dict[str, tuple[Value, Edge]] = {}
        self._floats: dict[str, Value] = {given.value.name: given.value for given in program.inputs}
        self._floats |= {
            name: Value(name)
            for name in (*program.parameters, *program.constants)
            if name not in quantized.weights
        }
        self._rows: dict[tuple[str, QSpec], Value] = {}
        self._weights: dict[str, Value] = {}

    def add(self, name: str, op: str, args: tuple[Any, ...], like: Step | None = None) -> Value:
        """A step under a new name."""
        name = self._names.fresh(name)
        self.steps.append(Step(name, op, args, (), "" if like is None else like.source))
        return Value(name)

    def put(self, like: Step, name: str, op: str, args: tuple[Any, ...], out: Edge | None) -> None:
        """The step that brings a value of the source program: as codes, or as floats."""
        if out is not None:
            self._codes[name] = (self.add(f"{name}_q", op, args, like), out)
            return
        self._as_float(name, op, args, like.source)

    def _as_float(self, name: str, op: str, args: tuple[Any, ...], source: str = "") -> None:
        """A step whose float32 is the value, in the dtype that the value had in the model."""
        self._floats[name] = Value(name)
        dtype = self.quantized.dtypes.get(name)
        if dtype is None:
            self.steps.append(Step(name, op, args, (), source))
            return
        made = self._names.fresh(f"{name}_float32")
        self.steps.append(Step(made, op, args, (), source))
        cast = (Value(made), TorchName("dtype", dtype))
        self.steps.append(Step(name, "aten.to.dtype", cast, (), source))

    def alias(self, name: str, value: Value) -> None:
        """A value of the source program that another step brings already, as float32."""
        dtype = self.quantized.dtypes.get(name)
        if dtype is not None:
            value = self.add(name, "aten.to.dtype", (value, TorchName("dtype", dtype)))
        self._floats[name] = value

    def codes(self, name: str, edge: Edge) -> Value:
        """A value as codes of a format."""
        known = self._codes.get(name)
        if known is not None:
            return known[0]
        made = self.add(f"{name}_q", "int.quantize", (self.floats(name), edge))
        self._codes[name] = (made, edge)
        return made

    def floats(self, name: str) -> Value:
        """A value as floats."""
        if name not in self._floats:
            if name in self._codes:
                codes, edge = self._codes[name]
                self._as_float(name, "int.dequantize", (codes, edge))
            else:
                self._floats[name] = self.add(f"{name}_w", "int.dequantize_weight", (Value(name),))
        return self._floats[name]

    def rows(self, name: str, spec: QSpec) -> Value:
        """A value as codes with a scale for each row, found while the program runs."""
        key = (name, spec)
        if key not in self._rows:
            args = (self.floats(name), spec)
            self._rows[key] = self.add(f"{name}_rows", "int.quantize_rows", args)
        return self._rows[key]

    def weight(self, name: str, root: str | None, makers: dict[str, Step], spec: QSpec) -> Value:
        """A weight as integers: a parameter, a cut of one, or computed and quantized once."""
        if name in self.quantized.weights:
            return Value(name)
        if name not in self._weights:
            if root in self.quantized.weights:
                maker = makers[name]
                inner = self.weight(maker.args[0].name, root, makers, spec)
                made = self.add(f"{name}_cut", maker.op, (inner, *maker.args[1:]), maker)
            else:
                made = self.add(f"{name}_int", "int.quantize_weight", (self.floats(name), spec))
            self._weights[name] = made
        return self._weights[name]

    def constant(self, name: str, tensor: Tensor) -> Value:
        """A new constant; one with the same content is not kept twice."""
        for known, other in self.constants.items():
            if other.dtype == tensor.dtype and torch.equal(other, tensor):
                return Value(known)
        name = self._names.fresh(name)
        self.constants[name] = tensor
        return Value(name)

    def copy(self, step: Step) -> None:
        """A step as it was, on floats."""
        args = mapped(step.args, self._leaf)
        kwargs = tuple((name, mapped(value, self._leaf)) for name, value in step.kwargs)
        self.steps.append(dataclasses.replace(step, args=args, kwargs=kwargs))
        self._floats[step.name] = Value(step.name)

    def _leaf(self, leaf: Any) -> Any:
        return self.floats(leaf.name) if isinstance(leaf, Value) else leaf

    def finish(self) -> Program:
        """The program, without the steps and constants that nothing reads."""
        source = self.quantized.program
        outputs = mapped(source.outputs, self._leaf)
        return dataclasses.replace(
            source, outputs=outputs, steps=tuple(self.steps), constants=self.constants
        )
