"""How fast are the tensor operations, against torch's own and against copying the same input?

    python benchmarks/tensor_ops.py [--threads 2] [--repeats 15]

Two tables: one with malloc keeping its pages, so that ratios compare the kernels, and one with
malloc as it comes, where every large result pays for fresh pages.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import torch
from timing import KEEP_PAGES, Row, medians, print_table, write_json
from torch import Tensor
from torch.ao.quantization import PerChannelMinMaxObserver

import halfstep  # noqa: F401  (registers the operators)

BOUNDS = (-128, 127)
ops = torch.ops.halfstep
Task = Callable[[], object]


@dataclass(frozen=True)
class Input:
    """A tensor with per-channel qparams, for us (all dimensions) and for torch (one)."""

    name: str
    x: Tensor
    axis: int
    scale: Tensor
    zero_point: Tensor

    @property
    def flat(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point as torch wants them."""
        return self.scale.flatten(), self.zero_point.flatten()


def make_input(name: str, x: Tensor, axis: int) -> Input:
    """Scales that saturate a few values."""
    shape = [x.shape[axis] if dim == axis else 1 for dim in range(x.ndim)]
    return Input(
        name, x, axis, torch.rand(shape) * 0.02 + 0.02, torch.zeros(shape, dtype=torch.int32)
    )


def large_inputs() -> Iterator[Input]:
    """An activation and a weight, in both memory formats."""
    activation, weight = torch.randn(16, 256, 56, 56), torch.randn(4096, 4096)
    last = activation.contiguous(memory_format=torch.channels_last)
    yield make_input("activation NCHW, axis 1", activation, 1)
    yield make_input("activation NHWC, axis 1", last, 1)
    yield make_input("weight, axis 0", weight, 0)
    yield make_input("weight, axis 1", weight, 1)


# Each benchmark gives (ours, torch's own).


def quantize(case: Input) -> tuple[Task, Task]:
    """To int8, per channel."""
    scale, zero_point = case.flat
    return (
        lambda: ops.quantize(case.x, case.scale, case.zero_point, *BOUNDS, torch.int8),
        lambda: torch.quantize_per_channel(case.x, scale, zero_point, case.axis, torch.qint8),
    )


def dequantize(case: Input) -> tuple[Task, Task]:
    """Back to float32, per channel."""
    codes = ops.quantize(case.x, case.scale, case.zero_point, *BOUNDS, torch.int8)
    theirs = torch.quantize_per_channel(case.x, *case.flat, case.axis, torch.qint8)
    return (
        lambda: ops.dequantize(codes, case.scale, case.zero_point, torch.float32),
        theirs.dequantize,
    )


def fake_quantize(case: Input) -> tuple[Task, Task]:
    """Forward, per channel."""
    scale, zero_point = case.flat
    return (
        lambda: ops.fake_quantize(case.x, case.scale, case.zero_point, *BOUNDS),
        lambda: torch.fake_quantize_per_channel_affine(
            case.x, scale, zero_point, case.axis, *BOUNDS
        ),
    )


def fake_quantize_training(case: Input) -> tuple[Task, Task]:
    """Forward and backward, per channel."""
    scale, zero_point = case.flat
    x, grad = case.x.detach().requires_grad_(), torch.randn_like(case.x)

    def run(forward: Callable[[], Tensor]) -> Task:
        return lambda: torch.autograd.grad(forward(), x, grad)

    return (
        run(lambda: ops.fake_quantize_with_mask(x, case.scale, case.zero_point, *BOUNDS)[0]),
        run(
            lambda: torch.fake_quantize_per_channel_affine(x, scale, zero_point, case.axis, *BOUNDS)
        ),
    )


def learnable_training(case: Input) -> tuple[Task, Task]:
    """Forward and backward with gradients for scale and zero point, per channel."""
    x, grad = case.x.detach().requires_grad_(), torch.randn_like(case.x)
    scale, zero_point = (p.float().requires_grad_() for p in (case.scale, case.zero_point))
    scales, zeros = (p.detach().flatten().requires_grad_() for p in (scale, zero_point))
    theirs = torch._fake_quantize_learnable_per_channel_affine  # noqa: SLF001  (it has no public name)

    def run(forward: Callable[[], Tensor], *inputs: Tensor) -> Task:
        return lambda: torch.autograd.grad(forward(), inputs, grad)

    return (
        run(
            lambda: ops.learnable_fake_quantize(x, scale, zero_point, *BOUNDS, 1.0),
            x,
            scale,
            zero_point,
        ),
        run(lambda: theirs(x, scales, zeros, case.axis, *BOUNDS, 1.0), x, scales, zeros),
    )


def min_max(case: Input) -> tuple[Task, Task]:
    """Ranges, per channel."""
    observer = PerChannelMinMaxObserver(case.axis)
    return lambda: ops.min_max(case.x, case.scale.shape), lambda: observer(case.x)


def quantize_per_tensor(case: Input) -> tuple[Task, Task]:
    """To int8, one scale."""
    one = [1] * case.x.ndim
    scale, zero_point = torch.full(one, 0.03), torch.zeros(one, dtype=torch.int32)
    return (
        lambda: ops.quantize(case.x, scale, zero_point, *BOUNDS, torch.int8),
        lambda: torch.quantize_per_tensor(case.x, 0.03, 0, torch.qint8),
    )


def min_max_per_tensor(case: Input) -> tuple[Task, Task]:
    """The range of all."""
    one = [1] * case.x.ndim
    return lambda: ops.min_max(case.x, one), lambda: torch.aminmax(case.x)


# What is asked: at least so many times torch's speed, and so much of the speed of a copy.
BENCHMARKS: dict[str, tuple[Callable[[Input], tuple[Task, Task]], float, float | None]] = {
    "quantize per channel": (quantize, 12, 1.4),
    "dequantize per channel": (dequantize, 1.3, 0.8),
    "fake-quantize per channel, forward": (fake_quantize, 2.2, 0.8),
    "fake-quantize per channel, forward + backward": (fake_quantize_training, 2.5, 0.4),
    "learnable fake-quantize, forward + backward": (learnable_training, 5, None),
    "min/max per channel": (min_max, 10, 1.5),
    "quantize per tensor": (quantize_per_tensor, 1, 1.4),
    "min/max per tensor": (min_max_per_tensor, 1, 1.4),
}


def large_rows(repeats: int) -> Iterator[Row]:
    """Every operation on every large input."""
    for case in large_inputs():
        for operation, (benchmark, against_torch, against_clone) in BENCHMARKS.items():
            ours, theirs = benchmark(case)
            times = medians({"ours": ours, "torch": theirs, "clone": case.x.clone}, repeats)
            row = Row(operation, case.name, **times)
            yield replace(row, least_against_torch=against_torch, least_against_clone=against_clone)


def small_rows() -> Iterator[Row]:
    """What a call costs when there is little to do."""
    case = make_input("64x64, axis 0", torch.randn(64, 64), 0)
    asked = {"quantize per channel": 0.5, "quantize per tensor": 0.2}
    for operation in ("quantize per channel", "quantize per tensor", "dequantize per channel"):
        ours, theirs = BENCHMARKS[operation][0](case)
        times = medians({"ours": ours, "torch": theirs, "clone": case.x.clone}, 2000)
        yield Row(operation, case.name, **times, least_against_torch=asked.get(operation))


def measure(threads: int, repeats: int) -> list[Row]:
    """All rows, in this process."""
    torch.set_num_threads(threads)
    return [*large_rows(repeats), *small_rows()]


def measure_elsewhere(threads: int, repeats: int, environment: dict[str, str]) -> list[Row]:
    """All rows, in a process with other settings of malloc."""
    command = [sys.executable, __file__, "--worker", f"--threads={threads}", f"--repeats={repeats}"]
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True
    )
    return [Row(**row) for row in json.loads(done.stdout)]


def main() -> None:
    """Measure under both settings of malloc, print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # torch's own quantized tensors announce their removal
    if options.worker:
        print(json.dumps([asdict(row) for row in measure(options.threads, options.repeats)]))
        return
    torch.set_num_threads(options.threads)
    sections = {
        title: measure_elsewhere(options.threads, options.repeats, environment)
        for title, environment in {
            "malloc keeps its pages": KEEP_PAGES,
            "malloc as it comes": {},
        }.items()
    }
    for title, rows in sections.items():
        print_table(f"{title}, {options.threads} threads", rows)
    print("wrote", write_json("tensor_ops", sections))


if __name__ == "__main__":
    main()
