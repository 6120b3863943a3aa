"""What runs a calibrated program, or writes it for others: one engine a file."""

from importlib import import_module
from importlib.util import find_spec

from halfstep.errors import ArgumentError
from halfstep.graph.engine import Engine

__all__ = ["ENGINES", "by_name", "installed"]

# Where each is, and the packages that it needs beside torch. Loaded when asked for: the translation
# to ONNX is a fifth of the package.
ENGINES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "torch": ("torch_engine", "TorchEngine", ()),
    "reference": ("reference", "ReferenceEngine", ()),
    "onnxruntime": ("onnx_runtime", "OnnxRuntimeEngine", ("onnx", "onnxruntime")),
    "openvino": ("openvino", "OpenVinoEngine", ("onnx", "openvino")),
}


def by_name(name: str) -> Engine:
    """The engine of that name, installed or not.

    Raises ``ArgumentError`` for a name that no engine has.

    >>> from halfstep.engines import by_name
    >>> by_name("torch").name
    'torch'
    """
    if name not in ENGINES:
        raise ArgumentError(f"engine={name!r} is not an engine: use one of {', '.join(ENGINES)}")
    module, kind, _ = ENGINES[name]
    made: Engine = getattr(import_module(f"halfstep.engines.{module}"), kind)()
    return made


def installed() -> tuple[str, ...]:
    """The names of the engines that run here; the reference is not meant to be fast.

    >>> from halfstep.engines import installed
    >>> "torch" in installed(), "reference" in installed()
    (True, False)
    """
    return tuple(
        name
        for name, (_, _, packages) in ENGINES.items()
        if name != "reference" and all(map(find_spec, packages))
    )
