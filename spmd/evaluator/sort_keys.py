"""Recognition of comparators that order by keys: ``a0 < b0``, ``f(a1) > f(b1)``, or one and then the next on a tie."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.evaluator.registry import EVALUATORS
from spmd.evaluator.value import NDArray, array_of
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import CompareAttrs, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ParameterAttrs
from spmd.ops.custom_call import is_sharding_annotation
from spmd.ops.reduction import through_annotations


@dataclass(frozen=True, slots=True)
class SortKey:
    """One sort key. ``expression``: the key of the left element, over the comparator's even parameters (parameter 2k:
    operand k).
    """

    expression: HloInstruction
    descending: bool
    total_order: bool

    def compute(self, arrays: Sequence[NDArray]) -> NDArray:
        return _compute(self.expression, arrays)


def _compute(expression: HloInstruction, arrays: Sequence[NDArray]) -> NDArray:
    values: dict[HloInstruction, NDArray] = {}
    for node in expression_nodes(expression):
        operands = tuple(values[operand] for operand in node.operands)
        if node.opcode is Opcode.PARAMETER:
            values[node] = arrays[node.attrs_as(ParameterAttrs).number // 2]
        elif is_sharding_annotation(node) or node.opcode is Opcode.COPY:
            values[node] = operands[0]
        else:
            values[node] = array_of(EVALUATORS[node.opcode](node, operands))
    return values[expression]


def expression_nodes(expression: HloInstruction) -> list[HloInstruction]:
    """Return `expression` and the instructions it depends on, operands first."""
    assert expression.parent is not None
    order = expression.parent.post_order()
    needed = {expression: None}
    for node in reversed(order):
        if node in needed:
            needed.update(dict.fromkeys(node.operands))
    return [node for node in order if node in needed]


#: Opcodes that are elementwise and evaluated from operands alone; enough for the keys that frontends write.
_KEY_OPCODES = frozenset(
    {
        Opcode.ABS, Opcode.ADD, Opcode.AND, Opcode.BITCAST, Opcode.BITCAST_CONVERT, Opcode.COMPARE,
        Opcode.CONSTANT, Opcode.CONVERT, Opcode.COPY, Opcode.IMAG, Opcode.IS_FINITE, Opcode.MULTIPLY,
        Opcode.NEGATE, Opcode.NOT, Opcode.OR, Opcode.REAL, Opcode.SELECT, Opcode.SHIFT_RIGHT_ARITHMETIC,
        Opcode.SHIFT_RIGHT_LOGICAL, Opcode.SUBTRACT, Opcode.XOR,
    }
)  # fmt: skip


def match_sort_keys(comparator: HloComputation) -> tuple[SortKey, ...] | None:
    """Return the keys in order of importance, or None for a comparator of another form."""
    return _match(through_annotations(comparator.root))


def _match(node: HloInstruction) -> tuple[SortKey, ...] | None:
    if node.opcode is Opcode.COMPARE:
        key = _match_compare(node)
        return None if key is None else (key,)
    if node.opcode is not Opcode.OR:
        return None
    for first, second in (node.operands, node.operands[::-1]):
        keys = _match_then(through_annotations(first), through_annotations(second))
        if keys is not None:
            return keys
    return None


def _match_then(less: HloInstruction, tie: HloInstruction) -> tuple[SortKey, ...] | None:
    """Match ``less or (equal and rest)`` in which ``equal`` compares the key of ``less``."""
    key = _match_compare(less) if less.opcode is Opcode.COMPARE else None
    if key is None or tie.opcode is not Opcode.AND:
        return None
    for equal, rest in (tie.operands, tie.operands[::-1]):
        if _is_equality_of(through_annotations(equal), less):
            keys = _match(through_annotations(rest))
            return None if keys is None else (key, *keys)
    return None


def _match_compare(node: HloInstruction) -> SortKey | None:
    attrs = node.attrs_as(CompareAttrs)
    lhs, rhs = node.operands
    if attrs.direction not in ("LT", "GT") or node.operand(0).array_shape.element_type.is_complex:
        return None
    total = attrs.type == "TOTALORDER"
    if _mirrored(lhs, rhs, 0):
        return SortKey(lhs, attrs.direction == "GT", total)
    if _mirrored(rhs, lhs, 0):  # b < a is a > b
        return SortKey(rhs, attrs.direction == "LT", total)
    return None


def _is_equality_of(node: HloInstruction, less: HloInstruction) -> bool:
    if node.opcode is not Opcode.COMPARE or node.attrs_as(CompareAttrs).direction != "EQ":
        return False
    is_float = less.operand(0).array_shape.element_type.is_floating
    if is_float and node.attrs_as(CompareAttrs).type != less.attrs_as(CompareAttrs).type:
        return False  # NaN ties differ between the two orders
    (a, b), (c, d) = node.operands, less.operands
    return (_same(a, c) and _same(b, d)) or (_same(a, d) and _same(b, c))


def _mirrored(a: HloInstruction, b: HloInstruction, parity: int) -> bool:
    """Return whether ``b`` is ``a`` with the other element's parameters; ``a`` reads only parameters of ``parity``."""

    def is_other(x: HloInstruction, y: HloInstruction) -> bool:
        number = x.attrs_as(ParameterAttrs).number
        return number % 2 == parity and y.attrs_as(ParameterAttrs).number == number ^ 1

    return _same_expression(a, b, is_other)


def _same(a: HloInstruction, b: HloInstruction) -> bool:
    """Return whether both are the same expression of the same parameters."""
    return _same_expression(a, b, lambda x, y: x.attrs == y.attrs)


def _same_expression(
    a: HloInstruction,
    b: HloInstruction,
    parameters: Callable[[HloInstruction, HloInstruction], bool],
) -> bool:
    """Return whether both are the same operations of parameters that `parameters` accepts; each pair is
    visited once.
    """
    pairs = [(a, b)]
    seen = dict.fromkeys(pairs)
    while pairs:
        x, y = pairs.pop()
        if x.opcode is not y.opcode:
            return False
        if x.opcode is Opcode.PARAMETER:
            if not parameters(x, y):
                return False
            continue
        if not _same_operation(x, y):
            return False
        for pair in zip(x.operands, y.operands, strict=True):
            if pair not in seen:
                seen[pair] = None
                pairs.append(pair)
    return True


def _same_operation(a: HloInstruction, b: HloInstruction) -> bool:
    known = a.opcode in _KEY_OPCODES or is_sharding_annotation(a)
    return known and a.num_operands == b.num_operands and a.attrs == b.attrs and a.shape == b.shape
