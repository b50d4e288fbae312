"""OpShardingRule: the relation between the dimensions of an op's operands and results, as data.

A factor is one index of the op, as in einsum notation. Each dimension of each tensor is a product of factors, major to
minor (nearly always exactly one; several for reshapes). Propagation and the generic partitioner are
written once, over factors.

    dot  [i, k] x [k, j] -> [i, j]        i, j pass through; k reduces
    reshape [8, 4] -> [32]                [i, j] -> [ij], both pass through
    reduce [i, j] -> [i]                  j reduces, kind from the reducer
    sort along j [i, j] -> [i, j]         j needs replication
"""

from __future__ import annotations

from enum import Enum

from partitioner.devices.axes import Axes
from spmd.device import ReductionKind
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, leaves


class FactorKind(Enum):
    PASS_THROUGH = "pass-through"  # noqa: S105 - no password
    REDUCTION = "reduction"
    NEED_REPLICATION = "need-replication"


@dataclass(frozen=True, slots=True)
class Factor:
    """One index of an op. ``reduction`` says how partial results over a REDUCTION factor combine.

    ``blocked``: propagation may not create this sharding, though the partitioner can honour it. ``pinned``: the factor
    is split along exactly these device axes (the edge of a manual region). ``windowed``: a window slides over one
    dimension to give another (convolution, slice, pad). Such a factor is alone in dimensions of different sizes, its
    own size being the smallest; the op's own partitioning exchanges halos.
    """

    size: int
    kind: FactorKind = FactorKind.PASS_THROUGH
    reduction: ReductionKind | None = None
    blocked: bool = False
    pinned: Axes | None = None
    windowed: bool = False


#: Factors of each dimension of a tensor, major to minor. Size-1 dimensions may have none.
TensorMapping = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class OpShardingRule:
    """Factors of an op, and the mapping of every operand and every result leaf onto them.

    A scalar's mapping is the empty tuple. An operand's padding along a REDUCTION factor is masked with the reduction's
    identity by the generic partitioner.

    R1 the factor sizes of a dimension multiply to its size (a windowed factor's is at most that)
    R2 a factor stands at most once in a tensor
    """

    factors: tuple[Factor, ...]
    operands: tuple[TensorMapping, ...]
    results: tuple[TensorMapping, ...]
    #: Operands whose value counts once although a REDUCTION factor is split (reduce's init value, scatter's input):
    #: devices other than the first along the factor's axes take the reduction's identity instead.
    identity_operands: tuple[int, ...] = ()

    def factor_dim(self, mapping: TensorMapping, factor: int) -> int | None:
        """Return the dimension of a tensor that holds ``factor``."""
        for dim, parts in enumerate(mapping):
            if factor in parts:
                return dim
        return None


class RuleBuilder:
    """Builder of a rule, factor by factor; dimensions never mentioned get a NEED_REPLICATION factor of their own.

    rule = RuleBuilder.for_instruction(dot)
    rule.factor(size=n, operands={0: 0}, results={0: 0})                       # lhs free
    rule.factor(size=k, operands={0: 1, 1: 0}, reduction=ReductionKind.SUM)    # contracting
    return rule.build()
    """

    def __init__(self, operands: list[tuple[int, ...]], results: list[tuple[int, ...]]) -> None:
        self._sizes = (operands, results)
        self._factors: list[Factor] = []
        self._operands: list[list[list[int]]] = [[[] for _ in dims] for dims in operands]
        self._results: list[list[list[int]]] = [[[] for _ in dims] for dims in results]
        self._identity_operands: tuple[int, ...] = ()

    @staticmethod
    def for_instruction(instruction: HloInstruction) -> RuleBuilder:
        """Return a builder with one tensor per operand (each an array) and one per result leaf that is an array."""
        operands = [
            operand.dims if isinstance(operand.shape, ArrayShape) else ()
            for operand in instruction.operands
        ]
        results = [
            shape.dims for _, shape in leaves(instruction.shape) if isinstance(shape, ArrayShape)
        ]
        return RuleBuilder(operands, results)

    def factor(
        self,
        size: int,
        operands: dict[int, int] | None = None,
        results: dict[int, int] | None = None,
        *,
        kind: FactorKind = FactorKind.PASS_THROUGH,
        reduction: ReductionKind | None = None,
        blocked: bool = False,
        pinned: Axes | None = None,
        windowed: bool = False,
    ) -> int:
        """Add a factor in dimension ``operands[i]`` of operand i and ``results[j]`` of result j. Returns its index.

        Calling again for the same dimension appends a more minor factor. ``reduction`` makes it a REDUCTION factor.
        """
        if reduction is not None:
            kind = FactorKind.REDUCTION
        index = len(self._factors)
        self._factors.append(Factor(size, kind, reduction, blocked, pinned, windowed))
        for i, dim in (operands or {}).items():
            self._operands[i][dim].append(index)
        for i, dim in (results or {}).items():
            self._results[i][dim].append(index)
        return index

    def counts_once(self, *operands: int) -> None:
        """Mark operands that count once per reduction (reduce's init value, scatter's input)."""
        self._identity_operands = operands

    def build(self) -> OpShardingRule:
        for sizes, mappings in zip(self._sizes, (self._operands, self._results), strict=True):
            for dims, mapping in zip(sizes, mappings, strict=True):
                for size, parts in zip(dims, mapping, strict=True):
                    if not parts:
                        parts.append(len(self._factors))
                        self._factors.append(Factor(size, FactorKind.NEED_REPLICATION))
        return OpShardingRule(
            tuple(self._factors),
            _freeze(self._operands),
            _freeze(self._results),
            self._identity_operands,
        )


def identity_rule(shape: ArrayShape) -> OpShardingRule:
    rule = RuleBuilder([shape.dims], [shape.dims])
    for dim, size in enumerate(shape.dims):
        rule.factor(size, operands={0: dim}, results={0: dim})
    return rule.build()


def _freeze(tensors: list[list[list[int]]]) -> tuple[TensorMapping, ...]:
    return tuple(tuple(tuple(parts) for parts in tensor) for tensor in tensors)
