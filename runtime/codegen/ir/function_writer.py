"""Writer of functions in LLVM IR: values with operators, loads and stores, structured loops and branches.

    f = FunctionWriter("spmd_copy", StridedCopy)
    with f.loop(f.record.rows) as r:
        ...
    ir = f.end()

Text is written as it is asked for; there is no graph of instructions. Loops and branches write their labels and phis.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from runtime.codegen.elements.builder import Bool, Code, Int, IntLike, Value
from runtime.codegen.ir.control_flow import Branch, Repetition
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import INDEPENDENT, Pointer, typed
from runtime.codegen.record import Record, RecordView, word_count
from spmd.lazy_dataclass import dataclass

Key = TypeVar("Key", bound=Hashable)
Moving = TypeVar("Moving", Pointer, Int)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position at the start of a loop, and its step per round: in bytes for an address, in ones for a number."""

    start: Pointer | Int
    step: IntLike


class FunctionWriter(Code):
    """Writer of the function ``name``.

    record: what its first parameter points to; ``lengths`` of the record's lists. parameters: types of the others.
    module: the one it is part of; by default one of its own. ``block``: the label of the block to which lines are
    added; empty behind a jump.
    """

    def __init__(
        self,
        name: str,
        record: type[Record] | None = None,
        *,
        module: Module | None = None,
        parameters: Sequence[str] = (),
        result: str = "void",
        linkage: str = "",
        attributes: str = "",
        **lengths: int,
    ) -> None:
        super().__init__()
        self.module = module if module is not None else Module()
        self.block = "entry"
        self.names = 0
        self._entry: list[str] = []
        self._next_word = word_count(record, lengths) if record is not None else 0
        listed = [*(["ptr"] if record is not None else []), *parameters]
        names = [f"%a{n}" for n in range(len(listed))]
        if record is not None:
            names[0] = "%record"
            self.record: Any = RecordView(self._entry_word, record, lengths)
        each = list(zip(listed, names, strict=True))
        self.parameters: list[Any] = [typed(self, p, n) for p, n in each]
        parts = [
            "define",
            linkage,
            result,
            f"@{name}({', '.join([f'{p} {n}' for p, n in each])})",
            attributes,
            "{",
        ]
        self._head = " ".join([word for word in parts if word])

    # ---- lines
    def add(self, line: str) -> None:
        """Add a line that defines no value."""
        self._lines.append(f"  {line}")

    def append(self, expression: str) -> str:
        """Add a line that defines a value and return its register."""
        self.names = number = self.names + 1
        self._lines.append(f"  %v{number} = {expression}")
        return f"%v{number}"

    #: The same, for code that names its values itself.
    value = append

    def declare(self, line: str) -> None:
        """Declare a function of another module; LLVM knows its intrinsics."""
        self.module.declare(line)

    def label(self, name: str = "b") -> str:
        self.names += 1
        return f"{name}{self.names}"

    def labels(self, *names: str) -> list[str]:
        self.names += 1
        return [f"{name}{self.names}" for name in names]

    def begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self._lines.append(f"  br label %{label}")
        self.block = ""

    def branch(self, condition: Value | str, on_true: str, on_false: str) -> None:
        self._lines.append(f"  br i1 {condition}, label %{on_true}, label %{on_false}")
        self.block = ""

    def switch(self, value: Value, count: int) -> tuple[list[str], str]:
        """Branch to one of ``count`` blocks, by a number below that; else to the last label."""
        labels, default = [self.label() for _ in range(count)], self.label()
        cases = " ".join([f"{value.type} {n}, label %{label}" for n, label in enumerate(labels)])
        self._lines.append(f"  switch {value.type} {value.name}, label %{default} [ {cases} ]")
        self.block = ""
        return labels, default

    def ret(self, value: Value | int | None = None) -> None:
        """Return from the function. A Python number is a word."""
        if value is None:
            self._lines.append("  ret void")
        elif isinstance(value, int):
            self._lines.append(f"  ret i64 {value}")
        else:
            self._lines.append(f"  ret {value.type} {value.name}")
        self.block = ""

    # ---- values
    def constant(self, value: IntLike, kind: str = "i64") -> Int:
        """Return a constant, or the value itself."""
        return value if isinstance(value, Int) else Int(self, kind, str(value))

    def true(self) -> Bool:
        return Bool(self, "true")

    def false(self) -> Bool:
        return Bool(self, "false")

    def null(self) -> Pointer:
        return Pointer(self, "null")

    def array(self, count: int, kind: str, align: int = 64) -> Pointer:
        """Return an array on the stack, made once at the function's entry."""
        self.names += 1
        name = f"%m{self.names}"
        self._entry.append(f"  {name} = alloca [{count} x {kind}], align {align}")
        return Pointer(self, name)

    def variable(self, kind: str, align: int = 0) -> Pointer:
        """Return room on the stack for one value, for what a function is given by address."""
        self.names += 1
        name = f"%m{self.names}"
        self._entry.append(f"  {name} = alloca {kind}{f', align {align}' if align else ''}")
        return Pointer(self, name)

    def call(self, result: str, name: str, *arguments: Value | int) -> Any:
        """Call function ``@name``, or the function at an address; the result is None for ``void``."""
        listed = ", ".join(
            [f"i64 {a}" if isinstance(a, int) else f"{a.type} {a.name}" for a in arguments]
        )
        called = name if name[0] == "%" else f"@{name}"
        if result == "void":
            self._lines.append(f"  call void {called}({listed})")
            return None
        return typed(self, result, self.append(f"call {result} {called}({listed})"))

    def results(self, struct: str, count: int, name: str, *arguments: Value) -> list[Any]:
        """Call ``@name``, which returns a ``struct`` of ``count`` values, and return these."""
        listed = ", ".join([f"{a.type} {a.name}" for a in arguments])
        made = self.append(f"call {struct} @{name}({listed})")
        kinds = struct[2:-2].split(", ")
        return [
            typed(self, kinds[n], self.append(f"extractvalue {struct} {made}, {n}"))
            for n in range(count)
        ]

    def memcpy(self, target: Pointer, source: Pointer, size: IntLike) -> None:
        self.add(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)"
        )

    def memset(self, target: Pointer, size: IntLike) -> None:
        self.add(f"call void @llvm.memset.p0.i64(ptr {target}, i8 0, i64 {size}, i1 false)")

    # ---- the record
    def _entry_word(self, number: int, is_address: bool) -> Any:
        """Load a word of the record in the function's first block."""
        lines = self._lines if self.block == "entry" else self._entry
        address = "%record"
        if number:
            address = f"%r{number}"
            lines.append(f"  {address} = getelementptr i64, ptr %record, i64 {number}")
        name = f"%w{number}"
        if is_address:
            lines.append(f"  {name} = load ptr, ptr {address}")
            return Pointer(self, name)
        lines.append(f"  {name} = load i64, ptr {address}")
        return Int(self, "i64", name)

    def next_word(self, kind: str = "i64") -> Any:
        """Load the next one of the words that come behind the record's fields."""
        self._next_word += 1
        return self._entry_word(self._next_word - 1, kind == "ptr")

    def view(self, record: type[Record], address: Pointer) -> Any:
        """Return the record at ``address``, whose words are loaded at each use."""

        def load(number: int, is_address: bool) -> Any:
            return address.pointer(number) if is_address else address.word(number)

        return RecordView(load, record, {}, is_cached=False)

    # ---- loops
    @contextmanager
    def loop(
        self, count: IntLike, *, first: IntLike = 0, step: IntLike = 1, nonempty: bool = True
    ) -> Iterator[Int]:
        """Repeat for ``first``, ``first + step``, .. below ``count``. nonempty: there is one at least."""
        self.names = n = self.names + 1
        head, end, before, lines = f"b{n}", f"e{n}", self.block, self._lines
        if nonempty:
            lines.append(f"  br label %{head}")
        else:
            self.branch(self.constant(first).ult(count), head, end)
        lines.append(f"{head}:")
        self.block = head
        name, at = f"%i{n}", len(lines)
        lines.append("")
        yield Int(self, "i64", name)
        following = self.append(f"add nuw nsw i64 {name}, {step}")
        more = self.append(f"icmp ult i64 {following}, {count}")
        lines[at] = f"  {name} = phi i64 [ {first}, %{before} ], [ {following}, %{self.block} ]"
        lines.append(f"  br i1 {more}, label %{head}, label %{end}")
        lines.append(f"{end}:")
        self.block = end

    @contextmanager
    def cursor_loop(
        self, count: IntLike, cursors: Mapping[Key, Cursor]
    ) -> Iterator[tuple[Int, dict[Key, Any]]]:
        """Repeat ``count`` times, at least once, while cursors move. Yields the round's number, and the cursors."""
        self.names = n = self.names + 1
        head, end, before, lines = f"b{n}", f"e{n}", self.block, self._lines
        lines.append(f"  br label %{head}")
        lines.append(f"{head}:")
        self.block = head
        here: dict[Key, Any] = {}
        for k, (key, cursor) in enumerate(cursors.items()):
            made = Pointer if cursor.start.__class__ is Pointer else _word
            here[key] = made(self, f"%c{n}_{k}")
        number, at = f"%i{n}", len(lines)
        lines.extend([""] * (len(here) + 1))
        yield Int(self, "i64", number), here
        latch = self.block
        for (key, cursor), k in zip(cursors.items(), itertools.count(at + 1)):
            one, start, step = here[key], cursor.start, cursor.step
            way = step.name if isinstance(step, Int) else step
            if one.__class__ is Pointer:
                past = self.append(f"getelementptr i8, ptr {one.name}, i64 {way}")
            else:
                past = self.append(f"add i64 {one.name}, {way}")
            lines[k] = (
                f"  {one.name} = phi {one.type} [ {start.name}, %{before} ], [ {past}, %{latch} ]"
            )
        following = self.append(f"add nuw nsw i64 {number}, 1")
        more = self.append(f"icmp ult i64 {following}, {count}")
        lines[at] = f"  {number} = phi i64 [ 0, %{before} ], [ {following}, %{latch} ]"
        lines.append(f"  br i1 {more}, label %{head}, label %{end}")
        lines.append(f"{end}:")
        self.block = end

    @contextmanager
    def blocks(
        self, size: Int, length: int, cursors: Mapping[Key, Cursor]
    ) -> Iterator[tuple[Int, Int, dict[Key, Any]]]:
        """Repeat for blocks of ``length`` of ``size`` indices, of which the last one may be shorter.

        Yields a block's first index, its length, and the cursors, whose steps are those from index to index.
        """
        count = (size + (length - 1)) // length
        steps = {key: Cursor(c.start, c.step * length) for key, c in cursors.items()}
        with self.cursor_loop(count, steps) as (number, here):
            first = number * length
            left = size - first
            yield first, left.ult(length).select(left, length), here

    @contextmanager
    def vector_loop(
        self, count: IntLike, unroll: int = 0, *, by_llvm: bool = False
    ) -> Iterator[Int]:
        """Write an innermost loop of ``count`` rounds, at least one, to be vectorized: its body must be one block.

        All loads and stores in it are independent of those of other rounds. unroll: number of vectors computed side by
        side; 0 leaves that to LLVM. The vectorizer (runtime/codegen/vectorizer) reads the text that is written here.
        by_llvm: LLVM's own makes the vectors, which takes longer, but more of them side by side.
        """
        if count == 1:
            yield self.constant(0)
            return
        self.names += 1
        n, before = self.names, self.block
        head, number, following = (
            f"{'vector' if by_llvm else 'element'}{n}",
            f"%k{n}",
            f"%next_k{n}",
        )
        self._lines += [
            f"  br label %{head}",
            f"{head}:",
            f"  {number} = phi i64 [ 0, %{before} ], [ {following}, %{head} ]",
        ]
        self.block, self.access = head, INDEPENDENT
        yield Int(self, "i64", number)
        assert self.block == head
        self.access = ""
        node = self.module.vector_loop(unroll)
        self.add(f"{following} = add nuw nsw i64 {number}, 1")
        more = self.append(f"icmp ult i64 {following}, {count}")
        self.add(f"br i1 {more}, label %{head}, label %done{n}, !llvm.loop !{node}")
        self.begin(f"done{n}")

    def repeat(self, *start: Value | int) -> Repetition:
        """Repeat with values that are carried from round to round: see Repetition. Numbers are words."""
        return Repetition(self, [self.constant(x) if isinstance(x, int) else x for x in start])

    def when(self, condition: Value | str) -> Branch:
        """Write code that runs if ``condition`` holds; what follows ``Branch.otherwise()`` runs if it does not."""
        return Branch(self, condition)

    def unless_zero(self, count: Int) -> Branch:
        """Write code that is skipped if ``count`` is 0."""
        return Branch(self, count.differs(0))

    @contextmanager
    def index_loop(
        self, dimensions: Pointer, rank: Int, most: int, pointers: Sequence[Pointer]
    ) -> Iterator[list[Pointer]]:
        """Repeat for each index of ``rank`` dimensions (``most`` at most), the last one fastest; 1 index for no rank.

        dimensions: where (size, a stride in bytes for each of ``pointers``) of each dimension lie. Yields the pointers,
        moved to the index. No size is 0.
        """
        indices = self.array(most, "i64")
        self.memset(indices, rank * 8)
        row_type = f"[{1 + len(pointers)} x i64]"
        with self.repeat(*pointers) as position:
            here: list[Pointer] = position.values
            yield here
            with self.repeat(rank, *here) as carry:
                d, *at = carry.values
                position.leave(d.equals(0))
                e = d - 1
                dimension = dimensions.element(row_type, e)
                size, *strides = (dimension.word(n) for n in range(1 + len(pointers)))
                index = indices.element("i64", e)
                now = index.word()
                following = now + 1
                with self.when(following.equals(size)):
                    index.store(self.constant(0))
                    back = [p.at(-(now * stride)) for p, stride in zip(at, strides, strict=True)]
                    carry.again(e, *back)
                index.store(following)
                position.again(*(p.at(s) for p, s in zip(at, strides, strict=True)))

    # ---- the end
    def body(self) -> list[str]:
        """Return the lines of the function's blocks."""
        return ["entry:", *self._entry, *self._lines]

    def finish(self) -> None:
        """End the function, which returns here if it has no result, and add it to the module."""
        if self.block:
            self.ret()
        self.module.add_function("\n".join([self._head, *self.body(), "}"]))
        # Values know their writer: what it holds of them would keep all of it until garbage is collected.
        self.parameters, self.record = [], None

    def end(self) -> str:
        """End the function and return the module's text."""
        self.finish()
        return self.module.text()


def _word(code: Code, name: str) -> Int:
    return Int(code, "i64", name)
