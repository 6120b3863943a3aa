"""What format a tensor has: frozen data, no tensor values."""

from halfstep.spec import recipes, remedies
from halfstep.spec.capabilities import Capabilities
from halfstep.spec.dtypes import (
    QDType,
    int2,
    int3,
    int4,
    int5,
    int6,
    int7,
    int8,
    int16,
    int32,
    uint2,
    uint3,
    uint4,
    uint5,
    uint6,
    uint7,
    uint8,
    uint16,
)
from halfstep.spec.granularity import Granularity, PerChannel, PerGroup, PerTensor, PerToken
from halfstep.spec.qspec import QSpec
from halfstep.spec.recipe import Recipe
from halfstep.spec.rule import Rule

__all__ = [
    "Capabilities",
    "Granularity",
    "PerChannel",
    "PerGroup",
    "PerTensor",
    "PerToken",
    "QDType",
    "QSpec",
    "Recipe",
    "Rule",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "int8",
    "int16",
    "int32",
    "recipes",
    "remedies",
    "uint2",
    "uint3",
    "uint4",
    "uint5",
    "uint6",
    "uint7",
    "uint8",
    "uint16",
]
