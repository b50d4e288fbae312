"""Where dynamic slices start: scalars computed once for a kernel, by which the arrays' cursors are moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runtime.codegen.element_operations import stored_type
from runtime.codegen.llvm_nest import NestWriter
from runtime.codegen.scalar_program import ScalarProgram, program_ir, struct_type

_FUNCTION = "starts"


@dataclass(frozen=True, slots=True)
class StartsForm:
    """``program`` gives the starts (s64) of scalars; ``counted`` parameters are words, the others pointers to elements.

    shifts: for each array the numbers of the starts that move it.
    """

    program: ScalarProgram
    counted: tuple[bool, ...]
    shifts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class StartsWords:
    """Words of the parameters (addresses, or numbers), and for each shift of each array its limit and its stride."""

    parameters: Sequence[int]
    shifts: Sequence[tuple[int, int]]

    def packed(self) -> list[int]:
        return [*self.parameters, *(word for shift in self.shifts for word in shift)]


def starts_ir(form: StartsForm) -> list[str]:
    """What ``shifted`` calls."""
    if not form.program.results:
        return []
    return [
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare i64 @llvm.smin.i64(i64, i64)",
        *program_ir(form.program, _FUNCTION),
    ]


def shifted(
    writer: NestWriter,
    form: StartsForm,
    next_word: Callable[[str], str],
    cursors: Mapping[int, str],
    counts: Sequence[bool],
) -> dict[int, str]:
    """``cursors`` moved to where their slices start, which are moved inside. next_word: of the record, as that type."""
    program = form.program
    if not program.results:
        return dict(cursors)
    arguments = []
    for kind, counted in zip(program.parameters, form.counted, strict=True):
        word = next_word("i64" if counted else "ptr")
        stored = stored_type(kind)
        value = word if counted else writer.value(f"load {stored}, ptr {word}")
        arguments.append(f"{stored} {value}")
    struct = struct_type(program)
    values = writer.value(f"call {struct} @{_FUNCTION}({', '.join(arguments)})")
    starts = [
        writer.value(f"extractvalue {struct} {values}, {n}") for n in range(len(program.results))
    ]
    moved = dict(cursors)
    for i, numbers in enumerate(form.shifts):
        for number in numbers:
            limit, stride = next_word("i64"), next_word("i64")
            above = writer.value(f"call i64 @llvm.smax.i64(i64 {starts[number]}, i64 0)")
            inside = writer.value(f"call i64 @llvm.smin.i64(i64 {above}, i64 {limit})")
            way = writer.value(f"mul i64 {inside}, {stride}")
            moved[i] = writer.moved(moved[i], way, counts=counts[i])
    return moved
