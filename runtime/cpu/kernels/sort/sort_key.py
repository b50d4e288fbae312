"""Sort keys: the values that a comparator compares, as unsigned integers in the same order."""

from __future__ import annotations

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.scalar_program_ir import program_ir
from runtime.program.scalar_program import ScalarConstant, ScalarOp, ScalarProgram, ScalarStep
from spmd.hlo import Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class SortKey:
    """Key of an element: the value that ``program`` computes from the element of operand number ``operand``.

    ``descending`` tells that larger values come first. Floats are in their total order.
    """

    operand: int
    program: ScalarProgram
    descending: bool

    @property
    def kind(self) -> PrimitiveType:
        """Return the type of the key."""
        return self.program.kind_of(self.program.results[0])

    @property
    def bits(self) -> int:
        """Return the number of bits of the key."""
        return 8 * self.kind.byte_size


def sort_key(comparator: ScalarProgram) -> SortKey | None:
    """Return the key by which ``comparator`` compares, or None if there is none.

    The comparator's parameters are the first and the second element of each operand in turn.

        lt(select(x == 0, 0, x), select(y == 0, 0, y)), total order   =>   the key select(x == 0, 0, x), ascending
    """
    root = _op(comparator, comparator.results[0])
    if root is None or root.signature.opcode is not Opcode.COMPARE:
        return None
    attrs = root.signature.attrs
    assert isinstance(attrs, CompareAttrs)
    kind = root.signature.operands[0]
    if attrs.direction not in ("LT", "GT") or not _is_ordered(kind, attrs):
        return None
    left, right = (_part(comparator, register) for register in root.operands)
    if left is None or right is None or left[1] != right[1]:
        return None
    first, second = left[0], right[0]
    if first // 2 != second // 2 or first == second:
        return None
    return SortKey(first // 2, left[1], (attrs.direction == "GT") != (first > second))


def _is_ordered(kind: PrimitiveType, attrs: CompareAttrs) -> bool:
    """Return whether values of type ``kind`` have the order of their bits, apart from signs.

    Floats have it in their total order, but not in their plain order, because of nan.
    """
    if kind.is_floating:
        return attrs.type == "TOTALORDER" and kind.byte_size > 1
    return kind is PrimitiveType.PRED or (kind.is_integer and kind.bits >= 8)


def _op(program: ScalarProgram, register: int) -> ScalarOp | None:
    """Return the operation that computes ``register``, or None if it is a parameter or a constant."""
    if register < len(program.parameters):
        return None
    step = program.steps[register - len(program.parameters)]
    return step if isinstance(step, ScalarOp) else None


def _part(program: ScalarProgram, register: int) -> tuple[int, ScalarProgram] | None:
    """Return the only parameter on which ``register`` depends, and the program that computes it from that parameter.

    Returns None unless there is exactly one parameter.
    """
    count = len(program.parameters)
    needed: dict[int, None] = {}
    parameters: dict[int, None] = {}

    def visit(r: int) -> None:
        if r < count:
            parameters[r] = None
            return
        if r in needed:
            return
        step = program.steps[r - count]
        if isinstance(step, ScalarOp):
            for operand in step.operands:
                visit(operand)
        needed[r] = None

    visit(register)
    if len(parameters) != 1:
        return None
    (parameter,) = parameters
    numbers = {parameter: 0} | {r: n for n, r in enumerate(needed, 1)}
    steps: list[ScalarStep] = []
    for r in needed:
        step = program.steps[r - count]
        if isinstance(step, ScalarConstant):
            steps.append(step)
        else:
            steps.append(ScalarOp(step.signature, tuple(numbers[x] for x in step.operands)))
    part = ScalarProgram((program.parameters[parameter],), tuple(steps), (numbers[register],))
    return parameter, part


def key_functions(key: SortKey) -> list[str]:
    """Return the functions that the code of ``key_of`` calls."""
    return program_ir(key.program, "value")


def key_of(f: FunctionWriter, key: SortKey, element: Value) -> Int:
    """Return the key of ``element`` as an unsigned number of ``key.bits`` bits, the smallest one first."""
    kind, width = key.kind, key.bits
    top = -(1 << (width - 1))
    (value,) = f.results(f"{{ {stored_type(kind)} }}", 1, "value", element)
    bits = Int(f, f"i{width}", f.append(f"bitcast {value.type} {value} to i{width}"))
    if kind.is_floating:
        bits = bits ^ (bits.signed_shift(width - 1) | top)
    elif kind.is_signed_integer:
        bits = bits ^ top
    return bits ^ -1 if key.descending else bits
