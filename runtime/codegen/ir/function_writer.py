"""Writer of functions in LLVM IR: values with operators, loads and stores, structured loops and branches.

    f = FunctionWriter("spmd_copy", StridedCopy)
    with f.loop(f.record.rows) as r:
        ...
    ir = f.end()

Each call appends text at once; there is no graph of instructions. Loops and branches write their labels and phis.
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
from runtime.program.argument_record import Record, RecordView, word_count
from spmd.lazy_dataclass import dataclass

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Value that a loop moves: it begins at ``start`` and grows by ``step`` per round, in bytes if it is an address."""

    start: Pointer | Int
    step: IntLike


class FunctionWriter(Code):
    """Writer of the function ``name`` of ``module``, by default a module of its own.

    If ``record`` is given, the first parameter points to it; ``lengths`` are those of the record's lists.
    ``parameters`` are the types of the other parameters. ``block`` is the label of the block to which lines are added,
    or empty after a jump.
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

    #: Another name of ``append``.
    value = append

    def declare(self, line: str) -> None:
        """Declare a function of another module, by the line ``declare ..``. LLVM's intrinsics need no declaration."""
        self.module.declare(line)

    def label(self, name: str = "b") -> str:
        """Return a new label that begins with ``name``."""
        self.names += 1
        return f"{name}{self.names}"

    def labels(self, *names: str) -> list[str]:
        """Return new labels that begin with ``names``."""
        self.names += 1
        return [f"{name}{self.names}" for name in names]

    def begin(self, label: str) -> None:
        """Begin the block ``label``."""
        self._lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """End the block with a jump to ``label``."""
        self._lines.append(f"  br label %{label}")
        self.block = ""

    def branch(self, condition: Value | str, on_true: str, on_false: str) -> None:
        """End the block with a branch to ``on_true`` or ``on_false``."""
        self._lines.append(f"  br i1 {condition}, label %{on_true}, label %{on_false}")
        self.block = ""

    def switch(self, value: Value, count: int) -> tuple[list[str], str]:
        """End the block with a switch. Returns labels for the values 0 to ``count`` - 1, and one for all others."""
        labels, default = [self.label() for _ in range(count)], self.label()
        cases = " ".join([f"{value.type} {n}, label %{label}" for n, label in enumerate(labels)])
        self._lines.append(f"  switch {value.type} {value.name}, label %{default} [ {cases} ]")
        self.block = ""
        return labels, default

    def ret(self, value: Value | int | None = None) -> None:
        """Return ``value`` from the function. A Python number is a 64-bit word."""
        if value is None:
            self._lines.append("  ret void")
        elif isinstance(value, int):
            self._lines.append(f"  ret i64 {value}")
        else:
            self._lines.append(f"  ret {value.type} {value.name}")
        self.block = ""

    # ---- values
    def constant(self, value: IntLike, kind: str = "i64") -> Int:
        """Return the constant ``value`` of type ``kind``, or ``value`` itself if it is generated code."""
        return value if isinstance(value, Int) else Int(self, kind, str(value))

    def true(self) -> Bool:
        return Bool(self, "true")

    def false(self) -> Bool:
        return Bool(self, "false")

    def null(self) -> Pointer:
        return Pointer(self, "null")

    def array(self, count: int, kind: str, align: int = 64) -> Pointer:
        """Return the address of an array on the stack, which exists once per call of the function."""
        self.names += 1
        name = f"%m{self.names}"
        self._entry.append(f"  {name} = alloca [{count} x {kind}], align {align}")
        return Pointer(self, name)

    def variable(self, kind: str, align: int = 0) -> Pointer:
        """Return the address of one value on the stack, to be passed to other functions."""
        self.names += 1
        name = f"%m{self.names}"
        self._entry.append(f"  {name} = alloca {kind}{f', align {align}' if align else ''}")
        return Pointer(self, name)

    def call(self, result: str, name: str, *arguments: Value | int) -> Any:
        """Call ``@name``, or the function at an address (``%name``). The result is None if ``result`` is ``void``."""
        listed = ", ".join(
            [f"i64 {a}" if isinstance(a, int) else f"{a.type} {a.name}" for a in arguments]
        )
        called = name if name[0] == "%" else f"@{name}"
        if result == "void":
            self._lines.append(f"  call void {called}({listed})")
            return None
        return typed(self, result, self.append(f"call {result} {called}({listed})"))

    def results(self, struct: str, count: int, name: str, *arguments: Value) -> list[Any]:
        """Call ``@name``, which returns a ``struct`` of ``count`` values, and return these values."""
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
        """Load word ``number`` of the record in the function's first block."""
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
        """Load the next of the words that follow the record's fields. ``kind`` is ``i64`` or ``ptr``."""
        self._next_word += 1
        return self._entry_word(self._next_word - 1, kind == "ptr")

    def view(self, record: type[Record], address: Pointer) -> Any:
        """Return a view of the record at ``address``, which loads a word at each use."""

        def load(number: int, is_address: bool) -> Any:
            return address.pointer(number) if is_address else address.word(number)

        return RecordView(load, record, {}, is_cached=False)

    # ---- loops
    @contextmanager
    def loop(
        self, count: IntLike, *, first: IntLike = 0, step: IntLike = 1, nonempty: bool = True
    ) -> Iterator[Int]:
        """Repeat for ``first``, ``first + step``, .. below ``count``. There must be a round if ``nonempty``."""
        none: Mapping[int, Cursor] = {}
        with self.cursor_loop(count, none, first=first, step=step, nonempty=nonempty) as (i, _):
            yield i

    @contextmanager
    def cursor_loop(
        self,
        count: IntLike,
        cursors: Mapping[Key, Cursor],
        *,
        first: IntLike = 0,
        step: IntLike = 1,
        nonempty: bool = True,
    ) -> Iterator[tuple[Int, dict[Key, Any]]]:
        """Repeat as ``loop`` does while ``cursors`` move. Yields the round's number and the cursors."""
        self.names = n = self.names + 1
        head, end, before, lines = f"b{n}", f"e{n}", self.block, self._lines
        if nonempty:
            lines.append(f"  br label %{head}")
        else:
            self.branch(self.constant(first).ult(count), head, end)
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
            one, start, by = here[key], cursor.start, cursor.step
            way = by.name if isinstance(by, Int) else by
            if one.__class__ is Pointer:
                past = self.append(f"getelementptr i8, ptr {one.name}, i64 {way}")
            else:
                past = self.append(f"add i64 {one.name}, {way}")
            lines[k] = (
                f"  {one.name} = phi {one.type} [ {start.name}, %{before} ], [ {past}, %{latch} ]"
            )
        following = self.append(f"add nuw nsw i64 {number}, {step}")
        more = self.append(f"icmp ult i64 {following}, {count}")
        lines[at] = f"  {number} = phi i64 [ {first}, %{before} ], [ {following}, %{latch} ]"
        lines.append(f"  br i1 {more}, label %{head}, label %{end}")
        lines.append(f"{end}:")
        self.block = end

    @contextmanager
    def blocks(
        self, size: Int, length: int, cursors: Mapping[Key, Cursor]
    ) -> Iterator[tuple[Int, Int, dict[Key, Any]]]:
        """Repeat for blocks of ``length`` of ``size`` indices, of which the last may be shorter.

        Yields the first index of the block, its length, and ``cursors``, whose steps are per index.
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
        """Write an innermost loop of ``count`` (>= 1) rounds, to be vectorized. Its body must be one block.

        No load or store may depend on one of another round. ``unroll`` is the number of vectors computed concurrently;
        0 leaves it to the vectorizer. The project's vectorizer (runtime/codegen/vectorizer) reads this very text. With
        ``by_llvm`` LLVM vectorizes the loop instead, which takes longer, but uses more vectors concurrently.
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
        """Return a loop that carries values from round to round. Python numbers are 64-bit words."""
        return Repetition(self, [self.constant(x) if isinstance(x, int) else x for x in start])

    def when(self, condition: Value | str) -> Branch:
        """Return a branch whose code runs if ``condition`` holds."""
        return Branch(self, condition)

    def unless_zero(self, count: Int) -> Branch:
        """Return a branch whose code runs if ``count`` is not 0."""
        return Branch(self, count.differs(0))

    @contextmanager
    def index_loop(
        self, dimensions: Pointer, rank: Int, most: int, pointers: Sequence[Pointer]
    ) -> Iterator[list[Pointer]]:
        """Repeat for each index of ``rank`` (<= ``most``) dimensions, the last one fastest; once if rank is 0.

        ``dimensions`` points to the size of each dimension and its stride in bytes for each of ``pointers``. No size is
        0. Yields the pointers moved to the index.
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
        """End the function and add it to the module. A function without a result returns here."""
        if self.block:
            self.ret()
        self.module.add_function("\n".join([self._head, *self.body(), "}"]))
        # Values refer to their writer: without these references it is freed at once, not by the collector.
        self.parameters, self.record = [], None

    def end(self) -> str:
        """End the function and return the text of its module."""
        self.finish()
        return self.module.text()


def _word(code: Code, name: str) -> Int:
    return Int(code, "i64", name)
