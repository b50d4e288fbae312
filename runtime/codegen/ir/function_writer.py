"""Nested loops in LLVM IR, with cursors that advance: pointers into arrays, or numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

#: Marks accesses of an innermost loop; its metadata declares accesses with this mark as
#: independent.
INDEPENDENT = ", !llvm.access.group !0"


@dataclass
class NestWriter:
    """Writer of a function's body. ``block`` is the label of the block to which lines are added."""

    lines: list[str] = field(default_factory=list)
    block: str = "entry"
    names: int = 0
    element_loops: list[int] = field(default_factory=list)
    words: int = 0

    def add(self, text: str) -> None:
        """Add a line that defines no value."""
        self.lines.append(f"  {text}")

    def value(self, text: str) -> str:
        """Add ``text`` as a value and return its name."""
        self.names += 1
        self.lines.append(f"  %v{self.names} = {text}")
        return f"%v{self.names}"

    def next_word(self, kind: str = "i64") -> str:
        """Load the record's next word, beginning with the first one."""
        place = self.value(f"getelementptr i64, ptr %record, i64 {self.words}")
        self.words += 1
        return self.value(f"load {kind}, ptr {place}")

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def labels(self, *names: str) -> list[str]:
        self.names += 1
        return [f"{name}{self.names}" for name in names]

    def moved(self, cursor: str, step: str, *, counts: bool) -> str:
        """Return ``cursor`` moved by ``step`` bytes, or ones."""
        if counts:
            return self.value(f"add i64 {cursor}, {step}")
        return self.value(f"getelementptr i8, ptr {cursor}, i64 {step}")

    @contextmanager
    def loop(
        self, count: str, cursors: Mapping[int, Cursor]
    ) -> Iterator[tuple[str, dict[int, str]]]:
        """Repeat the code written within ``count`` times, at least once. Yields the round's number, and cursors."""
        head, latch, end = self.labels("loop", "next", "done")
        before = self.block
        self.add(f"br label %{head}")
        self.begin(head)
        at = len(self.lines)
        self.names += 1
        number = f"%n{self.names}"
        here = {key: f"%at{self.names}_{key}" for key in cursors}
        past = {key: f"%past{self.names}_{key}" for key in cursors}
        yield number, here
        self.add(f"br label %{latch}")
        self.begin(latch)
        for key, cursor in cursors.items():
            move = "add i64" if cursor.counts else "getelementptr i8, ptr"
            step = cursor.step if cursor.counts else f"i64 {cursor.step}"
            self.add(f"{past[key]} = {move} {here[key]}, {step}")
        following = self.value(f"add nuw nsw i64 {number}, 1")
        more = self.value(f"icmp ult i64 {following}, {count}")
        self.add(f"br i1 {more}, label %{head}, label %{end}")
        phis = [f"  {number} = phi i64 [ 0, %{before} ], [ {following}, %{latch} ]"]
        phis += [
            f"  {here[key]} = phi {cursor.type} [ {cursor.start}, %{before} ], [ {past[key]}, %{latch} ]"
            for key, cursor in cursors.items()
        ]
        self.lines[at:at] = phis
        self.begin(end)

    @contextmanager
    def element_loop(self, count: str, together: int = 0) -> Iterator[str]:
        """Write an innermost loop of ``count`` rounds, at least one, to be vectorized: its body must be one block.

        together: number of vectors computed side by side; 0 leaves that to LLVM.
        """
        if count == "1":
            yield "0"
            return
        head, end = self.labels("element", "done")
        before = self.block
        self.add(f"br label %{head}")
        self.begin(head)
        self.names += 1
        number = f"%k{self.names}"
        following = f"%next_k{self.names}"
        self.lines.append(f"  {number} = phi i64 [ 0, %{before} ], [ {following}, %{head} ]")
        yield number
        assert self.block == head
        self.element_loops.append(together)
        self.add(f"{following} = add nuw nsw i64 {number}, 1")
        more = self.value(f"icmp ult i64 {following}, {count}")
        self.add(
            f"br i1 {more}, label %{head}, label %{end}, !llvm.loop !{len(self.element_loops)}"
        )
        self.begin(end)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Skip the code written within unless ``condition`` (i1) holds."""
        body, end = self.labels("some", "done")
        self.add(f"br i1 {condition}, label %{body}, label %{end}")
        self.begin(body)
        yield
        self.add(f"br label %{end}")
        self.begin(end)

    @contextmanager
    def unless_zero(self, count: str) -> Iterator[None]:
        """Skip the code written within if ``count`` is 0."""
        with self.when(self.value(f"icmp ne i64 {count}, 0")):
            yield

    def function(self, name: str) -> str:
        """Return the function ``void name(ptr record)``, with the metadata of its loops."""
        metadata = ["!0 = distinct !{}"]
        facts = len(self.element_loops) + 1
        metadata += [
            f"!{i} = distinct !{{!{i}, !{facts}{_interleaved(together)}}}"
            for i, together in enumerate(self.element_loops, 1)
        ]
        metadata.append(f'!{facts} = !{{!"llvm.loop.parallel_accesses", !0}}')
        return "\n".join(
            [
                f"define void @{name}(ptr %record) {{",
                "entry:",
                *self.lines,
                "  ret void\n}",
                *metadata,
            ]
        )


def _interleaved(together: int) -> str:
    return f', !{{!"llvm.loop.interleave.count", i32 {together}}}' if together else ""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position in an array at the start of a loop, and its step per round: in bytes, or in ones if it ``counts``."""

    start: str
    step: str
    counts: bool = False

    @property
    def type(self) -> str:
        return "i64" if self.counts else "ptr"
