"""Native code of row fusions: passes over the rows of arrays that reduce, and use what they have reduced.

Neighbours in memory are of one row, or of neighbouring rows. In the first case a row is reduced in n sums side by
side, element i in sum i modulo n, which are then added in halves; in the second, ``BLOCK`` rows are reduced side by
side. Either way the order of a sum depends on the sizes alone, on no processor's vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from runtime.codegen.elements.combining import (
    element_combining_ir,
    folding_ir,
    neutral_element,
)
from runtime.codegen.ir.dynamic_starts import shifted, starts_ir
from runtime.codegen.ir.element_operations import stored_type, wide_type
from runtime.codegen.ir.function_writer import INDEPENDENT, Cursor, NestWriter
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.loop.loop_ir import Step
from runtime.cpu.kernels.rows.row_variant import BLOCK, Held, Part, PassForm, Ref, RowForm
from spmd.shape import PrimitiveType

FUNCTION = "spmd_rows"


@cache
def row_code(form: RowForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(row_ir(form), (FUNCTION,))


def row_ir(form: RowForm) -> str:
    parts = starts_ir(form.starts)
    for number, each in enumerate(form.passes):
        for name, part in _parts(number, each):
            parts += program_ir(part.program, name)
    for number, (kind, element_type) in enumerate(form.reductions):
        parts += element_combining_ir(element_type, kind, f"_reduction{number}")
        if _folds_as_vector(form, element_type):
            parts.append(folding_ir(element_type, kind, form.lanes, f"fold{number}"))
    return "\n".join([*dict.fromkeys(parts), _Rows(form).function()])


def _folds_as_vector(form: RowForm, kind: PrimitiveType) -> bool:
    """Complex numbers are no elements of vectors that LLVM could add."""
    return form.lanes > 1 and not kind.is_complex


def _parts(number: int, each: PassForm) -> list[tuple[str, Part]]:
    return [
        (f"elements{number}", each.elements),
        (f"inits{number}", each.inits),
        (f"rows{number}", each.rows),
    ]


class _Rows:
    """Writes the function. ``here`` is always a cursor per array."""

    def __init__(self, form: RowForm) -> None:
        self.form = form
        self.writer = NestWriter()
        self.arrays = range(len(form.arrays))
        self.wides = [wide_type(kind) for _, kind in form.reductions]
        lanes, side = (form.lanes, 1) if form.along_rows else (BLOCK, BLOCK)
        allocate = self.writer.value
        self.sums = [allocate(f"alloca [{lanes} x {t}], align 64") for t in self.wides]
        kinds = [kind for _, kind in form.reductions]
        self.reduced = [allocate(f"alloca [{side} x {stored_type(k)}], align 64") for k in kinds]
        self.row_values = [
            allocate(f"alloca [{side} x {stored_type(k)}], align 64") for k in form.row_values
        ]

    def function(self) -> str:
        form, writer = self.form, self.writer
        next_word = writer.next_word
        types = ["i64" if array.counts else "ptr" for array in form.arrays]
        first = {i: next_word(types[i]) for i in self.arrays}
        self.counted_sizes = [next_word() for _ in range(form.counted)]
        self.reduced_sizes = [next_word() for _ in range(form.reduced)]
        self.counted_strides: dict[int, list[str]] = {}
        self.reduced_strides: dict[int, list[str]] = {}
        for i in self.arrays:
            self.counted_strides[i] = [next_word() for _ in range(form.counted)]
            self.reduced_strides[i] = [next_word() for _ in range(form.reduced)]
        counts = [array.counts for array in form.arrays]
        start = shifted(writer, form.starts, first, counts)
        self.row_length = self.reduced_sizes[0]
        for size in self.reduced_sizes[1:]:
            self.row_length = writer.value(f"mul i64 {self.row_length}, {size}")
        self.rows(0, start)
        return writer.function(FUNCTION)

    def cursors(self, here: Mapping[int, str], steps: Mapping[int, str]) -> dict[int, Cursor]:
        return {i: Cursor(at, steps[i], self.form.arrays[i].counts) for i, at in here.items()}

    def times(self, factor: str, strides: Mapping[int, str]) -> dict[int, str]:
        return {i: self.writer.value(f"mul i64 {factor}, {s}") for i, s in strides.items()}

    # ---- rows
    def rows(self, d: int, here: dict[int, str]) -> None:
        """Loops over the counted dimensions from ``d`` on."""
        form = self.form
        if form.along_rows and d == form.counted:
            self.passes(here, "1")
            return
        strides = {i: own[d] for i, own in self.counted_strides.items()}
        if form.along_rows or d < form.counted - 1:
            with self.writer.loop(self.counted_sizes[d], self.cursors(here, strides)) as (_, inner):
                self.rows(d + 1, inner)
            return
        value, size = self.writer.value, self.counted_sizes[d]
        above = value(f"add i64 {size}, {BLOCK - 1}")
        blocks = value(f"udiv i64 {above}, {BLOCK}")
        steps = self.times(str(BLOCK), strides)
        with self.writer.loop(blocks, self.cursors(here, steps)) as (number, inner):
            before = value(f"mul i64 {number}, {BLOCK}")
            left = value(f"sub i64 {size}, {before}")
            short = value(f"icmp ult i64 {left}, {BLOCK}")
            count = value(f"select i1 {short}, i64 {left}, i64 {BLOCK}")
            self.passes(inner, count)

    def passes(self, here: dict[int, str], count: str) -> None:
        """Everything for ``count`` rows side by side."""
        for number, each in enumerate(self.form.passes):
            self.begin_sums(number, each, here, count)
            if each.elements.results:
                used = {ref.number for ref in _array_refs(each.elements)}
                with self.writer.unless_zero(self.row_length):
                    self.walk(number, each, 0, {i: here[i] for i in sorted(used)}, count)
            self.end_sums(number, each, here, count)
            if each.rows.results:
                self.compute(f"rows{number}", each.rows, here, self.row_strides(), count)

    def row_strides(self) -> dict[int, str]:
        """From row to row of those side by side; along rows there is only one at a time."""
        if self.form.along_rows:
            return dict.fromkeys(self.arrays, "0")
        return {i: own[-1] for i, own in self.counted_strides.items()}

    # ---- one pass
    def begin_sums(self, number: int, each: PassForm, here: dict[int, str], count: str) -> None:
        """Along rows all lanes start from the neutral element, else from the initial value itself."""
        if not self.form.along_rows and each.inits.results:
            self.compute(f"inits{number}", each.inits, here, self.row_strides(), count)
            return
        for ref in each.inits.results:
            kind, element_type = self.form.reductions[ref.number]
            start = self.writer.value(neutral_element(element_type, kind))
            with self.writer.element_loop(str(self.form.lanes)) as k:
                self.put_sum(ref.number, k, start)

    def walk(self, number: int, each: PassForm, d: int, here: dict[int, str], count: str) -> None:
        """Loops over the reduced dimensions from ``d`` on."""
        form, name, together = self.form, f"elements{number}", self.form.together
        if not form.along_rows and d == form.reduced:
            self.compute(name, each.elements, here, self.row_strides(), count, together)
            return
        strides = {i: self.reduced_strides[i][d] for i in here}
        if not form.along_rows or d < form.reduced - 1:
            cursors = self.cursors(here, strides)
            with self.writer.loop(self.reduced_sizes[d], cursors) as (_, inner):
                self.walk(number, each, d + 1, inner, count)
            return
        size = self.reduced_sizes[d]
        if not each.inits.results:
            self.compute(name, each.elements, here, strides, size, together)
            return
        value = self.writer.value
        lanes = form.lanes
        full, rest = value(f"udiv i64 {size}, {lanes}"), value(f"urem i64 {size}, {lanes}")
        steps = self.times(str(lanes), strides)
        chunks = self.cursors(here, steps)
        with self.writer.unless_zero(full), self.writer.loop(full, chunks) as (_, inner):
            self.compute(name, each.elements, inner, strides, str(lanes), together)
        with self.writer.unless_zero(rest):
            way = self.times(full, steps)
            end = {
                i: self.writer.moved(at, way[i], counts=form.arrays[i].counts)
                for i, at in here.items()
            }
            self.compute(name, each.elements, end, strides, rest)

    def end_sums(self, number: int, each: PassForm, here: dict[int, str], count: str) -> None:
        """Sums in the element type: of the lanes and the initial value, or as they are."""
        if self.form.along_rows:
            for ref in each.inits.results:
                self.fold(ref.number)
            if each.inits.results:
                self.compute(f"inits{number}", each.inits, here, self.row_strides(), "1")
        for ref in each.inits.results:
            j, stored = ref.number, stored_type(self.form.reductions[ref.number][1])
            with self.writer.element_loop(count) as k:
                total = self.get_sum(j, k)
                narrow = f"@narrow_reduction{j}({self.wides[j]} {total})"
                result = self.writer.value(f"call {stored} {narrow}")
                place = self.writer.value(f"getelementptr {stored}, ptr {self.reduced[j]}, i64 {k}")
                self.writer.add(f"store {stored} {result}, ptr {place}{INDEPENDENT}")

    def fold(self, j: int) -> None:
        """Halves of the lanes onto each other, in registers: rows would wait for each other's memory."""
        if _folds_as_vector(self.form, self.form.reductions[j][1]):
            t = self.wides[j]
            vector = f"<{self.form.lanes} x {t}>"
            lanes = self.writer.value(f"load {vector}, ptr {self.sums[j]}, align 64")
            self.put_sum(j, "0", self.writer.value(f"call {t} @fold{j}({vector} {lanes})"))
            return
        width = self.form.lanes // 2
        while width:
            with self.writer.element_loop(str(width)) as k:
                other = self.writer.value(f"add i64 {k}, {width}")
                self.put_sum(j, k, self.combined(j, self.get_sum(j, k), self.get_sum(j, other)))
            width //= 2

    def get_sum(self, j: int, k: str) -> str:
        t = self.wides[j]
        place = self.writer.value(f"getelementptr {t}, ptr {self.sums[j]}, i64 {k}")
        return self.writer.value(f"load {t}, ptr {place}{INDEPENDENT}")

    def put_sum(self, j: int, k: str, total: str) -> None:
        t = self.wides[j]
        place = self.writer.value(f"getelementptr {t}, ptr {self.sums[j]}, i64 {k}")
        self.writer.add(f"store {t} {total}, ptr {place}{INDEPENDENT}")

    def combined(self, j: int, a: str, b: str) -> str:
        t = self.wides[j]
        return self.writer.value(f"call {t} @combine_reduction{j}({t} {a}, {t} {b})")

    # ---- elements
    def compute(
        self,
        name: str,
        part: Part,
        here: Mapping[int, str],
        strides: Mapping[int, str],
        count: str,
        together: int = 0,
    ) -> None:
        """``part`` for ``count`` elements that lie ``strides`` apart, so many vectors ``together``."""
        program, writer = part.program, self.writer
        kinds = program.parameters
        fixed = {
            n: self.read(ref, kinds[n], here, strides, "0", "")
            for n, ref in enumerate(part.leaves)
            if self.is_fixed(ref, name)
        }
        with writer.element_loop(count, together) as k:
            elements = [
                fixed.get(n) or self.read(ref, kinds[n], here, strides, k, INDEPENDENT)
                for n, ref in enumerate(part.leaves)
            ]
            typed = [f"{stored_type(t)} {x}" for t, x in zip(kinds, elements, strict=True)]
            struct = struct_type(program)
            values = writer.value(f"call {struct} @{name}({', '.join(typed)})")
            results = [
                writer.value(f"extractvalue {struct} {values}, {n}")
                for n in range(len(part.results))
            ]
            for n, ref in enumerate(part.results):
                kind = program.kind_of(program.results[n])
                self.write(name, ref, stored_type(kind), results[n], here, strides, k)

    def is_fixed(self, ref: Ref, name: str) -> bool:
        """Whether all elements side by side are one: it is read before the loop."""
        if ref.held is Held.ARRAY:
            return self.form.arrays[ref.number].step is Step.REPEATED
        return self.form.along_rows and name.startswith("elements")

    def read(
        self,
        ref: Ref,
        kind: PrimitiveType,
        here: Mapping[int, str],
        strides: Mapping[int, str],
        k: str,
        metadata: str,
    ) -> str:
        stored = stored_type(kind)
        if ref.held is Held.ARRAY:
            place = self.place(ref.number, here, strides, k)
            if self.form.arrays[ref.number].counts:
                return place
        else:
            held = self.reduced if ref.held is Held.REDUCTION else self.row_values
            base = held[ref.number]
            place = self.writer.value(f"getelementptr {stored}, ptr {base}, i64 {k}")
        return self.writer.value(f"load {stored}, ptr {place}{metadata}")

    def write(
        self,
        name: str,
        ref: Ref,
        stored: str,
        value: str,
        here: Mapping[int, str],
        strides: Mapping[int, str],
        k: str,
    ) -> None:
        if ref.held is Held.REDUCTION:
            j = ref.number
            wide = f"call {self.wides[j]} @widen_reduction{j}({stored} {value})"
            own = self.writer.value(wide)
            if not name.startswith("inits") or self.form.along_rows:
                total = self.get_sum(j, k)
                start = name.startswith("inits")
                own = self.combined(j, *((own, total) if start else (total, own)))
            self.put_sum(j, k, own)
            return
        if ref.held is Held.ARRAY:
            place = self.place(ref.number, here, strides, k)
        else:
            base = self.row_values[ref.number]
            place = self.writer.value(f"getelementptr {stored}, ptr {base}, i64 {k}")
        self.writer.add(f"store {stored} {value}, ptr {place}{INDEPENDENT}")

    def place(self, i: int, here: Mapping[int, str], strides: Mapping[int, str], k: str) -> str:
        """Element ``k`` from the cursor of array ``i``."""
        array = self.form.arrays[i]
        if k == "0":
            return here[i]
        if array.step is not Step.PACKED:
            way = self.writer.value(f"mul i64 {k}, {strides[i]}")
            return self.writer.moved(here[i], way, counts=array.counts)
        if array.counts:
            return self.writer.value(f"add i64 {here[i]}, {k}")
        return self.writer.value(f"getelementptr {stored_type(array.kind)}, ptr {here[i]}, i64 {k}")


def _array_refs(part: Part) -> list[Ref]:
    return [ref for ref in (*part.leaves, *part.results) if ref.held is Held.ARRAY]
