"""Halfstep: quantization for PyTorch that you can see through.

Formats, tensors and observers are loaded with the package; the verbs that act on whole models and
files (`hs.ptq`, `hs.simulate`, `hs.save`, ...) when they are first named, so that importing stays
quick.
"""

import importlib
import typing

from halfstep.errors import (
    ArgumentError,
    ArgumentTypeError,
    FallbackError,
    FileFormatError,
    GranularityError,
    HalfstepError,
    HalfstepWarning,
    MissingExtraError,
    MissingFileError,
    MutationError,
    NonFiniteError,
)
from halfstep.graph import recurrent as _recurrent  # noqa: F401  (registers its operators)
from halfstep.numerics import fake_quantize, learnable_fake_quantize
from halfstep.observe import (
    EntropyObserver,
    FakeQuantize,
    FixedObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageObserver,
    Observer,
    PercentileObserver,
    reset_observers,
    sync_observers,
)
from halfstep.spec import (
    PerChannel,
    PerGroup,
    PerTensor,
    PerToken,
    QDType,
    QSpec,
    Recipe,
    Rule,
    int2,
    int3,
    int4,
    int5,
    int6,
    int7,
    int8,
    int16,
    int32,
    recipes,
    remedies,
    uint2,
    uint3,
    uint4,
    uint5,
    uint6,
    uint7,
    uint8,
    uint16,
)
from halfstep.tensor import (
    QTensor,
    QuantizationError,
    add,
    dequantize,
    from_int_repr,
    mul,
    no_fallback,
    quantize,
)

if typing.TYPE_CHECKING:
    from halfstep.flows import ptq
    from halfstep.flows.calibrate import calibrate
    from halfstep.flows.coverage import Coverage
    from halfstep.flows.deploy import deploy
    from halfstep.flows.explain import explain
    from halfstep.flows.quantizers import Quantizer
    from halfstep.flows.result import Result
    from halfstep.flows.sensitivity import Sensitivity, sensitivity
    from halfstep.flows.ship import export_onnx, load, save
    from halfstep.flows.simulate import simulate, simulated
    from halfstep.flows.tally import SimulationReport
    from halfstep.formats import load_tensors, save_tensors
    from halfstep.report.explanation import Explanation

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "Coverage",
    "EntropyObserver",
    "Explanation",
    "FakeQuantize",
    "FallbackError",
    "FileFormatError",
    "FixedObserver",
    "GranularityError",
    "HalfstepError",
    "HalfstepWarning",
    "HistogramObserver",
    "MinMaxObserver",
    "MissingExtraError",
    "MissingFileError",
    "MovingAverageObserver",
    "MutationError",
    "NonFiniteError",
    "Observer",
    "PerChannel",
    "PerGroup",
    "PerTensor",
    "PerToken",
    "PercentileObserver",
    "QDType",
    "QSpec",
    "QTensor",
    "QuantizationError",
    "Quantizer",
    "Recipe",
    "Result",
    "Rule",
    "Sensitivity",
    "SimulationReport",
    "__version__",
    "add",
    "calibrate",
    "deploy",
    "dequantize",
    "explain",
    "export_onnx",
    "fake_quantize",
    "from_int_repr",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "int8",
    "int16",
    "int32",
    "learnable_fake_quantize",
    "load",
    "load_tensors",
    "mul",
    "no_fallback",
    "ptq",
    "quantize",
    "recipes",
    "remedies",
    "reset_observers",
    "save",
    "save_tensors",
    "sensitivity",
    "simulate",
    "simulated",
    "sync_observers",
    "uint2",
    "uint3",
    "uint4",
    "uint5",
    "uint6",
    "uint7",
    "uint8",
    "uint16",
]

__version__ = "0.1.0"

_ROOM_OF = dict.fromkeys(("load_tensors", "save_tensors"), "halfstep.formats")


if not typing.TYPE_CHECKING:  # For type checkers a misspelt name stays an error.

    def __getattr__(name: str) -> object:
        """A verb, imported when it is first named."""
        if name not in __all__:
            raise AttributeError(f"module 'halfstep' has no attribute {name!r}")
        value = getattr(importlib.import_module(_ROOM_OF.get(name, "halfstep.flows")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """All names, those not imported yet as well."""
    return sorted({*globals(), *__all__})
