"""What runs a calibrated program, or writes it for others: one engine a file."""

from importlib.util import find_spec

from halfstep.engines.onnx_runtime import OnnxRuntimeEngine
from halfstep.engines.openvino import OpenVinoEngine
from halfstep.engines.reference import ReferenceEngine
from halfstep.engines.torch_engine import TorchEngine
from halfstep.errors import ArgumentError
from halfstep.graph.engine import Engine

__all__ = ["ENGINES", "by_name", "installed"]

# With the packages that each needs beside torch.
ENGINES: dict[str, tuple[type[Engine], tuple[str, ...]]] = {
    "torch": (TorchEngine, ()),
    "reference": (ReferenceEngine, ()),
    "onnxruntime": (OnnxRuntimeEngine, ("onnx", "onnxruntime")),
    "openvino": (OpenVinoEngine, ("onnx", "openvino")),
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
    return ENGINES[name][0]()


def installed() -> tuple[str, ...]:
    """The names of the engines that run here; the reference is not meant to be fast.

    >>> from halfstep.engines import installed
    >>> "torch" in installed(), "reference" in installed()
    (True, False)
    """
    return tuple(
        name
        for name, (_, packages) in ENGINES.items()
        if name != "reference" and all(map(find_spec, packages))
    )
