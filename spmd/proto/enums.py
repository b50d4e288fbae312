"""Numbers of enum values, by the public .proto files; the names are those of HLO text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from spmd.errors import HloParseError
from spmd.ops.attrs import DOT_ALGORITHMS
from spmd.shape import PrimitiveType
from spmd.sharding import ShardingKind, SubgroupType

V = TypeVar("V")


class EnumNumbers(Generic[V]):
    """Values by number and back."""

    __slots__ = ("_numbers", "_values", "what")

    def __init__(self, what: str, numbers: Mapping[V, int]) -> None:
        self.what = what
        self._numbers = dict(numbers)
        self._values = {number: value for value, number in numbers.items()}

    def value(self, number: int) -> V:
        found = self._values.get(number)
        if found is None:
            raise HloParseError(f"unknown {self.what} {number}")
        return found

    def number(self, value: V) -> int:
        found = self._numbers.get(value)
        if found is None:
            raise HloParseError(f"the proto has no {self.what} {value}")
        return found


def _counted(what: str, *names: str) -> EnumNumbers[str]:
    return EnumNumbers(what, {name: number for number, name in enumerate(names) if name})


TUPLE, OPAQUE, TOKEN, BUFFER = 13, 14, 17, 34
PRIMITIVE_TYPES = EnumNumbers(
    "element type",
    {
        PrimitiveType.PRED: 1,
        PrimitiveType.S8: 2,
        PrimitiveType.S16: 3,
        PrimitiveType.S32: 4,
        PrimitiveType.S64: 5,
        PrimitiveType.U8: 6,
        PrimitiveType.U16: 7,
        PrimitiveType.U32: 8,
        PrimitiveType.U64: 9,
        PrimitiveType.F16: 10,
        PrimitiveType.F32: 11,
        PrimitiveType.F64: 12,
        PrimitiveType.C64: 15,
        PrimitiveType.BF16: 16,
        PrimitiveType.C128: 18,
        PrimitiveType.F8E5M2: 19,
        PrimitiveType.F8E4M3FN: 20,
        PrimitiveType.S4: 21,
        PrimitiveType.U4: 22,
        PrimitiveType.F8E4M3B11FNUZ: 23,
        PrimitiveType.F8E5M2FNUZ: 24,
        PrimitiveType.F8E4M3FNUZ: 25,
        PrimitiveType.S2: 26,
        PrimitiveType.U2: 27,
        PrimitiveType.F8E4M3: 28,
        PrimitiveType.F8E3M4: 29,
        PrimitiveType.S1: 30,
        PrimitiveType.U1: 31,
        PrimitiveType.F4E2M1FN: 32,
        PrimitiveType.F6E2M3FN: 36,
        PrimitiveType.F6E3M2FN: 35,
        PrimitiveType.F8E8M0FNU: 33,
    },
)

SHARDING_OTHER, SHARDING_TUPLE = 3, 2
SHARDING_KINDS = EnumNumbers(
    "sharding type",
    {
        ShardingKind.REPLICATED: 0,
        ShardingKind.MAXIMAL: 1,
        ShardingKind.TUPLE: SHARDING_TUPLE,
        ShardingKind.TILED: SHARDING_OTHER,
        ShardingKind.MANUAL: 4,
        ShardingKind.UNKNOWN: 5,
        ShardingKind.UNREDUCED: 6,
    },
)
SUBGROUP_TYPES = EnumNumbers(
    "subgroup type",
    {SubgroupType.REPLICATED: 0, SubgroupType.MANUAL: 4, SubgroupType.UNREDUCED: 6},
)
SHARD_GROUP_TYPES = _counted("shard group type", "shard_as", "shard_like")

PRECISIONS = _counted("precision", "default", "high", "highest")
ALGORITHMS = EnumNumbers("algorithm", {name: i for i, name in enumerate(DOT_ALGORITHMS)})
CONVOLUTION_KINDS = EnumNumbers("convolution kind", {"": 0, "fprop": 1, "dgrad": 2, "wgrad": 3})
PADDING_TYPES = EnumNumbers("padding type", {"": 0, "PADDING_VALID": 1, "PADDING_SAME": 2})
FFT_TYPES = _counted("FFT type", "FFT", "IFFT", "RFFT", "IRFFT")
DISTRIBUTIONS = _counted("distribution", "", "rng_uniform", "rng_normal")
RNG_ALGORITHMS = _counted("rng algorithm", "rng_default", "rng_three_fry", "rng_philox")
TRANSPOSES = _counted("transpose_a", "", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
SCHEDULES = EnumNumbers(
    "custom call schedule", {"": 0, "SCHEDULE_LATEST": 1, "SCHEDULE_EARLIEST": 2}
)
#: The first version is what a text without api_version means.
API_VERSIONS = EnumNumbers(
    "custom call API version",
    {
        "API_VERSION_UNSPECIFIED": 0,
        "API_VERSION_ORIGINAL": 1,
        "API_VERSION_STATUS_RETURNING": 2,
        "API_VERSION_STATUS_RETURNING_UNIFIED": 3,
        "API_VERSION_TYPED_FFI": 4,
    },
)
ACCURACY_MODES = _counted("accuracy mode", "default", "highest")
MUST_ALIAS, MAY_ALIAS, UNDEFINED_ALIAS = 2, 1, 0
