"""A calibrated model part: a float program, and what is decided of its steps and values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from halfstep.graph.edges import Edge
from halfstep.graph.program import Program
from halfstep.spec import QSpec


class Execution(Enum):
    """How a step runs.

    INTEGER: on codes whose scale is known beforehand.
    DYNAMIC: on codes whose scales are found, row by row, while the model runs.
    WEIGHT_ONLY: in float, with a weight that is kept as integers.
    FLOAT: as it was.
    """

    INTEGER = "integer"
    DYNAMIC = "dynamic"
    WEIGHT_ONLY = "weight-only"
    FLOAT = "float"


@dataclass(frozen=True)
class Decision:
    """What is decided of one step, and why.

    reason: for a reader of the coverage table; empty where the recipe asked for just this.
    weight: the format of the step's weights, where they are kept as integers.
    input: the format of its rows, for ``DYNAMIC``.
    """

    execution: Execution
    reason: str = ""
    weight: QSpec | None = None
    input: QSpec | None = None


@dataclass(frozen=True, eq=False)
class Quantized:
    """A program in float, with a decision for each of its steps and the formats of its values.

    The program has no in-place steps, no dropout and folded batch norms. ``edges`` holds every
    value that an engine may want as codes, by name: the inputs and outputs of ``INTEGER`` steps.
    Which of them exist in the end is decided for each engine, by ``convert``. ``decisions`` are by
    the name of the step. ``weights`` names the parameters and constants that are ``QTensor`` in
    the module that the program runs over, or in its constants. ``shapes`` are those of the values
    that were seen in calibration, and ``dtypes`` names their float dtypes where not float32.
    """

    program: Program
    edges: Mapping[str, Edge] = field(default_factory=dict)
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    weights: Mapping[str, QSpec] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def __deepcopy__(self, memo: dict[int, object]) -> "Quantized":
        return self  # nothing in it ever changes
