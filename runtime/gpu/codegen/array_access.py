"""Array accesses of GPU threads: base addresses, strides, and vector loads and stores of contiguous elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runtime.codegen.elements.builder import Int
from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.dynamic_starts import computed_starts, moved_by
from runtime.codegen.ir.scalar_program_ir import program_ir
from runtime.codegen.ir.values import typed
from runtime.gpu.codegen.launch import ALIGNMENT, ArgumentKind, KernelArgument
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.program.records import loop
from runtime.program.records.loop import LoopLeaf, Numbers
from runtime.program.slice_starts import StageVariant, StartsVariant
from runtime.program.strides import Shift, StridedView
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Instructions of a GPU that element operations may use.
INSTRUCTIONS = Instructions(
    fused=True, rounds=True, approximates=True, short=True, extremes=True, contracts=True
)
#: Indices and byte offsets below this limit fit a signed 32-bit integer.
_MOST = 1 << 31


@dataclass(frozen=True, slots=True)
class GpuArrayAccess:
    """Access to an array, or to numbers that are computed from the indices (iota).

    argument: pointer to the array, or None for numbers, whose type is s64. start, strides: in bytes relative to the
    pointer; for numbers, the first number and its increments. shifts: offsets of the start that are known at run time.
    """

    argument: KernelArgument | None
    kind: PrimitiveType
    start: int
    strides: tuple[int, ...]
    shifts: tuple[Shift, ...] = ()

    @property
    def counts(self) -> bool:
        """True if the access yields numbers that are computed from the indices."""
        return self.argument is None

    @property
    def item(self) -> int:
        """Distance of adjacent elements: bytes of an element, or 1 for numbers."""
        return 1 if self.counts else self.kind.byte_size

    @property
    def stored(self) -> str:
        """LLVM type of an element in memory."""
        return stored_type(self.kind)


def array_access(kind: ArgumentKind, number: int, array: StridedView) -> GpuArrayAccess:
    """Return the access to the entire operand, result or scratch array ``number``, whose layout is ``array``."""
    argument = KernelArgument(kind, number)
    return GpuArrayAccess(argument, array.element_type, array.offset, array.strides)


def view_access(
    kind: ArgumentKind, number: int, array: StridedView, view: StridedView
) -> GpuArrayAccess:
    """Return the access to ``view``, whose offset is relative to the first element of array ``number``."""
    argument, start = KernelArgument(kind, number), array.offset + view.offset
    return GpuArrayAccess(argument, view.element_type, start, view.strides)


def leaf_access(leaf: LoopLeaf, operands: Sequence[StridedView]) -> GpuArrayAccess:
    """Return the access to the elements or numbers that ``leaf`` of a loop kernel reads."""
    if isinstance(leaf, Numbers):
        return GpuArrayAccess(
            None, PrimitiveType.S64, leaf.view.offset, leaf.view.strides, leaf.shifts
        )
    argument, start = (
        KernelArgument(ArgumentKind.OPERAND, leaf.operand),
        operands[leaf.operand].offset,
    )
    view = leaf.view
    return GpuArrayAccess(
        argument, view.element_type, start + view.offset, view.strides, leaf.shifts
    )


def index_type(
    sizes: Sequence[int], accesses: Sequence[GpuArrayAccess], strides: Sequence[Sequence[int]]
) -> str:
    """Return the LLVM type for indices: i32 if all indices and byte offsets fit, else i64.

    Indices include those of threads beyond the last element. strides: for each of ``accesses``, its strides along
    ``sizes``.
    """
    ways = [
        sum(abs(stride) * size for stride, size in zip(own, sizes, strict=True))
        for own, access in zip(strides, accesses, strict=True)
    ]
    return "i32" if 2 * math.prod(sizes) < _MOST and max(ways, default=0) < _MOST else "i64"


# ---- where arrays begin
def begun(writer: ThreadWriter, access: GpuArrayAccess) -> str:
    """Emit the address of the first element of an array and return it; for numbers return the first number."""
    if access.argument is None:
        return str(access.start)
    pointer = writer.pointer(access.argument)
    return writer.value(f"getelementptr i8, ptr {pointer}, i64 {access.start}")


def starts_functions(stages: Sequence[loop.StartsStage]) -> list[str]:
    """Return the IR of the functions that compute the run-time starts of ``stages``."""
    return [
        part
        for number, stage in enumerate(stages)
        for part in program_ir(stage.program, f"starts{number}", INSTRUCTIONS)
    ]


def computed(
    writer: ThreadWriter, stages: Sequence[loop.StartsStage], operands: Sequence[StridedView]
) -> list[str]:
    """Emit the computation of run-time starts and return the results of the last stage (i64).

    Every thread computes them.
    """
    generated = []
    for stage in stages:
        accesses = [leaf_access(leaf, operands) for leaf in stage.leaves]
        writer.constants += [begun(writer, access) for access in accesses]
        writer.constants += _shift_constants(accesses)
        counts = tuple(access.counts for access in accesses)
        generated.append(StageVariant(stage.program, counts, _shift_numbers(accesses)))
    return [start.name for start in computed_starts(writer, StartsVariant(tuple(generated), ()))]


def moved(
    writer: ThreadWriter, accesses: Sequence[GpuArrayAccess], starts: Sequence[str]
) -> list[str]:
    """Emit the base address of each access, moved by its shifts, and return the addresses. starts: run-time starts."""
    first = {
        i: typed(writer, "i64" if access.counts else "ptr", begun(writer, access))
        for i, access in enumerate(accesses)
    }
    writer.constants += _shift_constants(accesses)
    numbers = [Int(writer, "i64", start) for start in starts]
    addresses = moved_by(writer, _shift_numbers(accesses), numbers, first)
    return [addresses[i].name for i in range(len(accesses))]


def _shift_constants(accesses: Sequence[GpuArrayAccess]) -> list[str]:
    return [
        str(constant)
        for access in accesses
        for shift in access.shifts
        for constant in (shift.limit, shift.stride)
    ]


def _shift_numbers(accesses: Sequence[GpuArrayAccess]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(shift.start for shift in access.shifts) for access in accesses)


# ---- contiguous elements
def piece(access: GpuArrayAccess, strides: Sequence[int], count: int) -> int:
    """Return how many elements along the last of ``strides`` one load or store instruction can move.

    Threads access groups of ``count`` elements that begin at multiples of ``count``; the pointers are aligned to
    ``ALIGNMENT``. Returns 1 if the elements are not contiguous.
    """
    if access.counts or not strides or strides[-1] != access.item:
        return 1
    *outer, _ = strides
    offsets = (
        access.start,
        count * access.item,
        *outer,
        *(shift.stride for shift in access.shifts),
    )
    return max(1, math.gcd(ALIGNMENT, *offsets) // access.item)


def load(
    writer: ThreadWriter, access: GpuArrayAccess, address: str, stride: int, count: int, piece: int
) -> list[str]:
    """Emit loads of ``count`` elements and return their values. Numbers are computed instead.

    The elements are ``stride`` bytes apart from ``address`` on. piece: number of elements of one instruction.
    """
    if access.counts:
        return [
            address if j * stride == 0 else writer.value(f"add i64 {address}, {j * stride}")
            for j in range(count)
        ]
    t = access.stored
    if stride == 0:
        return [writer.value(f"load {t}, ptr {address}, align {access.item}")] * count
    found = []
    for first in range(0, count, piece):
        at = offset_address(writer, address, first * stride)
        align = piece * access.item
        if piece == 1:
            found.append(writer.value(f"load {t}, ptr {at}, align {align}"))
            continue
        vector = writer.value(f"load <{piece} x {t}>, ptr {at}, align {align}")
        found += [
            writer.value(f"extractelement <{piece} x {t}> {vector}, i32 {j}") for j in range(piece)
        ]
    return found


def store(
    writer: ThreadWriter,
    access: GpuArrayAccess,
    address: str,
    stride: int,
    elements: Sequence[str],
    piece: int,
) -> None:
    """Emit stores of ``elements``, ``stride`` bytes apart from ``address`` on.

    piece: number of elements of one instruction.
    """
    t = access.stored
    for first in range(0, len(elements), piece):
        at = offset_address(writer, address, first * stride)
        align = piece * access.item
        if piece == 1:
            writer.add(f"store {t} {elements[first]}, ptr {at}, align {align}")
            continue
        vector = "poison"
        for j in range(piece):
            vector = writer.value(
                f"insertelement <{piece} x {t}> {vector}, {t} {elements[first + j]}, i32 {j}"
            )
        writer.add(f"store <{piece} x {t}> {vector}, ptr {at}, align {align}")


def offset_address(writer: ThreadWriter, address: str, way: int) -> str:
    """Emit ``address`` plus the constant ``way`` in bytes."""
    return address if way == 0 else writer.value(f"getelementptr i8, ptr {address}, i64 {way}")


def address_at(writer: ThreadWriter, access: GpuArrayAccess, base: str, way: str) -> str:
    """Emit ``base`` plus the value ``way``, whose type is that of indices: an address in bytes, or a number."""
    if way == "0":
        return base
    distance = writer.to_i64(way)
    if access.counts:
        return writer.value(f"add i64 {base}, {distance}")
    return writer.value(f"getelementptr i8, ptr {base}, i64 {distance}")
