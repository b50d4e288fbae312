"""Row fusions on a GPU: reductions along rows and computations with their results, in consecutive passes over a row.

If contiguous elements belong to one row, some lanes of a warp, a warp, or a block process a row. Each thread processes
groups of contiguous elements at a fixed distance, lanes exchange their totals, and warps combine totals through shared
memory. If contiguous elements belong to adjacent rows, the lanes of a warp process adjacent groups of rows, and the
warps of a block divide the elements of these rows. The order of a sum depends only on sizes, layouts and the target
GPU.

A row that fits into the registers of its threads is loaded from memory once, and cached values stay in registers. For
longer rows, each pass loads the elements again and recomputes cached values.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.codegen.elements.combining import element_combining_ir
from runtime.codegen.elements.storage import stored_type, wide_type
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.gpu.codegen.array_access import (
    INSTRUCTIONS,
    address_at,
    computed,
    index_type,
    load,
    moved,
    piece,
    starts_functions,
    store,
)
from runtime.gpu.codegen.emitters import GpuArrays
from runtime.gpu.codegen.launch import KernelSource
from runtime.gpu.codegen.row_division import MOST_DIVIDENDS, divided, quotients_ir, quotients_type
from runtime.gpu.codegen.row_inputs import Part, RowPart, RowParts
from runtime.gpu.codegen.row_schedule import RowPlan
from runtime.gpu.codegen.row_sums import RowSums
from runtime.gpu.codegen.thread_writer import ThreadWriter
from runtime.program.records.rows import RowKernel, Source


class Rows(RowSums):
    """Writer of the kernel. A thread processes ``plan.side`` rows, in groups of ``plan.along`` elements of a row."""

    entry = "spmd_rows"

    def __init__(
        self, kernel: RowKernel, parts: RowParts, plan: RowPlan, arrays: GpuArrays
    ) -> None:
        self.kernel, self.parts, self.plan, self.arrays = kernel, parts, plan, arrays
        self.reductions = parts.fusion.reductions
        sizes = [*parts.counted, *parts.reduced]
        self.strides = [
            (*a, *b) for a, b in zip(parts.counted_strides, parts.reduced_strides, strict=True)
        ]
        self.writer = ThreadWriter(index=index_type(sizes, parts.accesses, self.strides))
        inner = parts.reduced_strides if plan.along_rows else parts.counted_strides
        others = parts.counted_strides if plan.along_rows else parts.reduced_strides
        self.steps = [own[-1] for own in inner]
        self.pieces = [
            piece(access, (*other, *own), plan.vector_elements) if plan.vector_elements > 1 else 1
            for access, own, other in zip(parts.accesses, inner, others, strict=True)
        ]
        #: Element programs that divide by a number of their row, if a thread has a single row, and how many elements
        #: are divided together.
        self.divided = [divided(each.elements) if plan.side == 1 else None for each in parts.passes]
        self.divisions: set[int] = set()
        self.wides = [wide_type(each.element_type) for each in self.reductions]
        #: Values of the thread's current rows by number: reductions and row values, one for each
        #: row. Values by (number, unrolled group): elements of array accesses and cached values.
        self.reduced: dict[int, list[str]] = {}
        self.row_values: dict[int, list[str]] = {}
        self.elements: dict[tuple[int, int], list[str]] = {}
        self.cached: dict[tuple[int, int], list[str]] = {}

    # ---- the kernel
    def source(self) -> KernelSource:
        """Emit the kernel and return its launch."""
        writer, plan, parts = self.writer, self.plan, self.parts
        t, value = writer.index, writer.value
        side = plan.side
        self.sums = [[value(f"alloca {wide}") for _ in range(side)] for wide in self.wides]
        starts = computed(writer, self.kernel.starts, self.arrays.operands)
        self.bases = moved(writer, parts.accesses, starts)
        thread = writer.thread()
        self.lane = value(f"and i32 {thread}, {plan.lanes - 1}")
        own = value(f"lshr i32 {thread}, {plan.lanes.bit_length() - 1}")
        # Lanes divide a row, or else adjacent groups of rows.
        row, self.first = (own, self.lane) if plan.along_rows else (self.lane, own)
        self.thread, self.warp = thread, value(f"lshr i32 {thread}, 5")
        block = writer.to_index(writer.block_number())
        with writer.strided_loop(block, str(self.rounds), str(self.blocks)) as number:
            before = value(f"mul nuw nsw {t} {self.round_of(number)}, {plan.rows_per_block}")
            at = value(f"add nuw nsw {t} {before}, {writer.to_index(row)}")
            self.counts = self.within(at, plan.row_groups, plan.row_groups % plan.rows_per_block)
            self.at = self.clamped(at, plan.row_groups, self.counts)
            *outer, last = parts.counted
            self.row_indices = writer.delinearize(self.at, [*outer, last // side])
            self.row()
            if writer.shared_bytes:
                writer.barrier()
        functions = [*starts_functions(self.kernel.starts), *self.functions()]
        return writer.source(self.entry, functions, self.blocks, plan.threads)

    @property
    def rounds(self) -> int:
        """Number of rounds that all blocks perform in total."""
        return self.plan.rounds

    @property
    def blocks(self) -> int:
        """Number of blocks of the launch."""
        return min(self.rounds, self.plan.most_blocks)

    def round_of(self, number: str) -> str:
        """Return the number n of a round: the block processes groups of rows from n * ``rows_per_block`` on.

        ``number`` counts the rounds of all blocks.
        """
        return number

    def functions(self) -> list[str]:
        """Return the IR of the programs and reductions that the kernel calls."""
        found: list[str] = []
        for number, each in enumerate(self.parts.passes):
            for name, part in (
                ("elements", each.elements),
                ("inits", each.inits),
                ("rows", each.rows),
            ):
                found += program_ir(part.program, f"{name}{number}", INSTRUCTIONS)
            if (split := self.divided[number]) is not None:
                found += program_ir(split.before.program, f"before{number}", INSTRUCTIONS)
                found += program_ir(split.after.program, f"after{number}", INSTRUCTIONS)
        for count in sorted(self.divisions):
            found += quotients_ir(f"quotients{count}", count)
        for number, reduction in enumerate(self.reductions):
            found += element_combining_ir(
                reduction.element_type, reduction.kind, f"_reduction{number}", INSTRUCTIONS
            )
        return found

    def row(self) -> None:
        """Emit all passes over the thread's current rows."""
        for cache in (self.reduced, self.row_values, self.elements, self.cached):
            cache.clear()
        for number, each in enumerate(self.parts.passes):
            self.begin_sums(each)
            if self.plan.groups:
                self.emit_pass(number, each)
            self.totals(each.reductions)
            self.end_sums(number, each)
            self.row_part(number, each)

    # ---- elements
    def emit_pass(self, number: int, each: RowPart) -> None:
        """Emit pass ``number`` over all groups of a row that the thread processes."""
        if not (each.reductions or each.cached or each.results):
            return
        plan, writer = self.plan, self.writer
        if plan.chunks == 1:
            self.chunk(number, each, writer.to_index(self.first))
            return
        with writer.strided_loop(*self.chunks(), "1") as chunk:
            self.elements.clear()
            self.cached.clear()
            step = plan.step * plan.unrolled
            before = writer.value(f"mul nuw nsw {writer.index} {chunk}, {step}")
            own = writer.to_index(self.first)
            self.chunk(number, each, writer.value(f"add nuw nsw {writer.index} {before}, {own}"))
            self.elements.clear()
            self.cached.clear()

    def chunks(self) -> tuple[str, str]:
        """Return the first chunk of a row that the block processes, and the end of its chunks."""
        return "0", str(self.plan.chunks)

    def chunk(self, number: int, each: RowPart, first: str) -> None:
        """Emit pass ``number`` for the unrolled groups of a chunk, ``plan.step`` apart from group ``first`` on.

        All loads come first, then the computations, then reductions and stores.
        """
        plan, writer = self.plan, self.writer
        counts: list[str | None] = []
        self.group_indices = []
        for r in range(plan.unrolled):
            at = first
            if r:
                at = writer.value(f"add nuw nsw {writer.index} {first}, {r * plan.step}")
            inside = plan.step * plan.unrolled * plan.chunks <= plan.groups
            valid = self.within(at, plan.groups, 0 if inside else 1)
            counts.append(valid)
            at = self.clamped(at, plan.groups, valid)
            *outer, last = self.parts.reduced
            self.group_indices.append(writer.delinearize(at, [*outer, last // plan.along]))
        for r in range(plan.unrolled):
            self.read(number, r)
        batch = max(1, MOST_DIVIDENDS // plan.vector_elements)
        made = []
        for r in range(0, plan.unrolled, batch):
            made += self.results(number, range(r, min(r + batch, plan.unrolled)))
        for r, results in enumerate(made):
            for position, j in enumerate(each.reductions):
                self.add_up(j, results[position], counts[r])
            for position, n in enumerate(each.results, len(each.reductions) + len(each.cached)):
                self.write(n, self.group_indices[r], results[position], counts[r])

    def read(self, number: int, r: int) -> None:
        """Emit loads of the elements that pass ``number`` needs for unrolled group ``r``, unless they are in registers.

        Elements from which cached values must be recomputed are loaded as well.
        """
        for leaf in self.parts.passes[number].elements.leaves:
            if isinstance(leaf, int):
                if (leaf, r) not in self.elements:
                    self.elements[leaf, r] = self.loaded(leaf, self.group_indices[r])
            elif leaf.source is Source.CACHED and (leaf.number, r) not in self.cached:
                self.read(self.parts.producer(leaf.number)[0], r)

    def results(self, number: int, groups: Sequence[int]) -> list[list[list[str]]]:
        """Emit the element program of pass ``number`` for the unrolled ``groups``.

        Returns, for each group and each result of the program, its values for the elements of the group.
        """
        each, split, count = (
            self.parts.passes[number],
            self.divided[number],
            self.plan.vector_elements,
        )
        leaves = [self.leaf_values(each.elements, r) for r in groups]
        if split is None:
            made = [self.called(f"elements{number}", each.elements, own, count) for own in leaves]
        else:
            divided = [self.called(f"before{number}", split.before, own, count) for own in leaves]
            dividends = [x for own, _ in divided for x in own]
            quotients = self.quotients(dividends, divided[0][1][0])
            made = [
                self.called(
                    f"after{number}", split.after, [*own, quotients[k * count :][:count]], count
                )
                for k, own in enumerate(leaves)
            ]
        for r, own in zip(groups, made, strict=True):
            for position, n in enumerate(each.cached, len(each.reductions)):
                self.cached[n, r] = own[position]
        return made

    def leaf_values(self, part: Part, r: int) -> list[list[str]]:
        """Return the values of each parameter of ``part`` for the elements of unrolled group ``r``."""
        leaves = []
        for leaf in part.leaves:
            if isinstance(leaf, int):
                leaves.append(self.elements[leaf, r])
            elif leaf.source is Source.CACHED:
                leaves.append(self.cached_values(leaf.number, r))
            else:
                values = self.reduced if leaf.source is Source.REDUCTION else self.row_values
                own = values[leaf.number]
                leaves.append(own if self.plan.side > 1 else own * self.plan.vector_elements)
        return leaves

    def quotients(self, dividends: Sequence[str], divisor: str) -> list[str]:
        """Emit the divisions of ``dividends`` by ``divisor``, a number of the row, and return the quotients."""
        value, count = self.writer.value, len(dividends)
        self.divisions |= {count}
        arguments = ", ".join(f"float {x}" for x in (*dividends, divisor))
        made = value(f"call {quotients_type(count)} @quotients{count}({arguments})")
        return [value(f"extractvalue {quotients_type(count)} {made}, {n}") for n in range(count)]

    def cached_values(self, cached: int, r: int) -> list[str]:
        """Return the elements of cached value ``cached`` for unrolled group ``r``, recomputed if not in registers."""
        if (cached, r) not in self.cached:
            self.results(self.parts.producer(cached)[0], (r,))
        return self.cached[cached, r]

    def called(
        self, name: str, part: Part, leaves: Sequence[Sequence[str]], count: int
    ) -> list[list[str]]:
        """Emit calls of the program ``name`` for ``count`` elements, and return the values of each of its results.

        leaves: for each parameter, its values for the elements.
        """
        program, value = part.program, self.writer.value
        struct, results = struct_type(program), range(len(program.results))
        made: list[list[str]] = [[] for _ in results]
        for e in range(count):
            typed = [
                f"{stored_type(kind)} {own[e]}"
                for kind, own in zip(program.parameters, leaves, strict=True)
            ]
            call = value(f"call {struct} @{name}({', '.join(typed)})")
            for n in results:
                made[n].append(value(f"extractvalue {struct} {call}, {n}"))
        return made

    # ---- arrays
    def address(self, i: int, group: Sequence[str]) -> str:
        """Emit the address in array access ``i`` of the thread's first row at indices ``group`` along the row.

        Without ``group`` it is the address of a value per row.
        """
        parts, plan, writer = self.parts, self.plan, self.writer
        *outer, last = parts.counted_strides[i]
        ways = [writer.way(self.row_indices, (*outer, last * plan.side))]
        if group:
            *outer, last = parts.reduced_strides[i]
            ways.append(writer.way(group, (*outer, last * plan.along)))
        address = self.bases[i]
        for way in ways:
            address = address_at(writer, parts.accesses[i], address, way)
        return address

    def loaded(self, i: int, group: Sequence[str]) -> list[str]:
        """Emit loads from array access ``i``: a group of elements, or, without ``group``, a value for each row."""
        access, plan = self.parts.accesses[i], self.plan
        count = plan.vector_elements if group else plan.side
        address = self.address(i, group)
        return load(self.writer, access, address, self.steps[i], count, min(self.pieces[i], count))

    def write(
        self, i: int, group: Sequence[str], elements: Sequence[str], valid: str | None
    ) -> None:
        """Emit the store of ``elements`` to array access ``i``, if ``valid`` is true and the thread's rows exist."""
        conditions = [c for c in (valid, self.counts) if c is not None]
        address = self.address(i, group)
        count = min(self.pieces[i], len(elements))

        def put() -> None:
            store(self.writer, self.parts.accesses[i], address, self.steps[i], elements, count)

        if not conditions:
            put()
            return
        both = conditions[0]
        if len(conditions) > 1:
            both = self.writer.value(f"and i1 {both}, {conditions[1]}")
        with self.writer.when(both):
            put()

    def within(self, at: str, size: int, left: int) -> str | None:
        """Emit the test that ``at`` is less than ``size`` (i1). Return None if ``left`` is 0: then it always is."""
        return self.writer.value(f"icmp ult {self.writer.index} {at}, {size}") if left else None

    def clamped(self, at: str, size: int, valid: str | None) -> str:
        """Emit ``at`` if ``valid``, else ``size`` - 1, so that loads are in bounds. The results are then discarded."""
        if valid is None:
            return at
        t = self.writer.index
        return self.writer.value(f"select i1 {valid}, {t} {at}, {t} {size - 1}")

    # ---- rows
    def end_sums(self, number: int, each: RowPart) -> None:
        """Emit the combination of the totals of pass ``number`` with their initial values, in the elements' type."""
        writer = self.writer
        inits = self.per_row(f"inits{number}", each.inits) if each.reductions else []
        for j, own in zip(each.reductions, inits, strict=True):
            wide, stored = self.wides[j], stored_type(self.reductions[j].element_type)
            found = []
            for init, accumulator in zip(own, self.sums[j], strict=True):
                start = writer.value(f"call {wide} @widen_reduction{j}({stored} {init})")
                total = writer.value(f"load {wide}, ptr {accumulator}")
                with_init = self.combined(j, start, total)
                found.append(
                    writer.value(f"call {stored} @narrow_reduction{j}({wide} {with_init})")
                )
            self.reduced[j] = found

    def per_row(self, name: str, part: Part) -> list[list[str]]:
        """Emit calls of the per-row program ``name``, and return each result's values for the thread's rows."""
        leaves = []
        for leaf in part.leaves:
            if isinstance(leaf, int):
                leaves.append(self.loaded(leaf, ()))
            else:
                values = self.reduced if leaf.source is Source.REDUCTION else self.row_values
                leaves.append(values[leaf.number])
        return self.called(name, part, leaves, self.plan.side)

    def row_part(self, number: int, each: RowPart) -> None:
        """Emit the per-row program of pass ``number``. One thread of each row stores its results."""
        if not (each.row_values or each.row_results):
            return
        made = self.per_row(f"rows{number}", each.rows)
        for n, own in zip(each.row_values, made, strict=False):
            self.row_values[n] = own
        chosen = None
        for n, own in zip(each.row_results, made[len(each.row_values) :], strict=True):
            if chosen is None:
                chosen = self.writer.value(f"icmp eq i32 {self.first}, 0")
            self.write(n, (), own, chosen)
