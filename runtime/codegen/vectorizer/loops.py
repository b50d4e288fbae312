"""Vectorizer for loops over elements, on the text of their LLVM IR. LLVM's own takes most of a compilation's time.

``FunctionWriter.vector_loop`` writes loops whose iterations are independent and whose body is one block; the functions
that they call are straight-line code as well. Each line of such a body is rewritten for vectors. The remainder of a
loop runs the same lines under a mask, or, on a processor without masks, half a vector and then the scalar lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from runtime.codegen.vectorizer.functions import (
    TYPE,
    Functions,
    Needs,
    NoVectorsError,
    size_of,
    spread,
)
from runtime.codegen.vectorizer.lines import VectorLines
from runtime.codegen.vectorizer.target import VectorTarget
from spmd.lazy_dataclass import dataclass

#: Largest element size in bytes of masked instructions.
_LARGEST = 8
#: Largest number of registers that one value uses.
_SIDE_BY_SIDE = 4
#: Largest number of lines of a body whose values use four or two registers, so that the overhead of
#: the loop itself is shared.
_FOUR, _TWO = 5, 10
#: Largest number of lines of a body that is written twice, once without a mask for full vectors,
#: because masked stores are slower.
_TWICE = 32
#: Least number of lines of a body per strided array for which vectors pay. Its elements are collected in registers one
#: by one without masks, or gathered and scattered with masks, which is slower than scalar accesses. A slow line counts
#: as _SLOW lines.
_PER_COLLECTED, _PER_GATHERED, _SLOW = 3, 8, 12
#: Largest number of lines times registers per value of a loop of known length that is written without a loop.
_STRAIGHT = 64
_PHI = re.compile(r"  (%\w+) = phi i64 \[ 0, %(\w+) \], \[ %next_k\d+, %(\w+) \]")
_LESS = re.compile(r"  %\w+ = icmp ult i64 %\w+, (\S+)")
_BACK = re.compile(r"  br i1 %\w+, label %\w+, label %(\w+), !llvm.loop !(\d+)")
_REST = re.compile(r"  (%\w+) = urem i64 \S+, (\d+)$")
_ALLOCA = re.compile(r"  (%\w+) = alloca \[(\d+) x \w+\]")
_DEFINED = re.compile(r"  (%[\w.]+) = ")
_VALUE = re.compile(r"%[\w.]+")
_INTERLEAVE = re.compile(r'!(\d+) = .*!"llvm.loop.interleave.count", i32 (\d+)')


def vectorized(ir: str, target: VectorTarget) -> str | None:
    """Return the module ``ir`` with its loops over elements written for ``target``.

    Returns None if a loop cannot be vectorized, if there is none, or if LLVM is to vectorize one of them.
    """
    if "\nelement" not in ir or "\nvector" in ir:
        return None
    try:
        return _Module(ir, target).text()
    except NoVectorsError:
        return None


@dataclass(frozen=True, slots=True)
class _Loop:
    """Loop over elements as parsed.

    ``index`` is the induction variable, ``before`` the label of the preceding block, and ``most`` an upper bound on
    ``count``, or None if it is not known.
    """

    index: str
    before: str
    head: str
    end: str
    body: list[str]
    count: str
    most: int | None
    interleave: int

    @property
    def is_constant(self) -> bool:
        """Return whether the number of iterations is a constant."""
        return self.count.isdigit()

    @property
    def strided_accesses(self) -> int:
        """Return the number of strided arrays, whose elements are gathered or collected one by one."""
        return sum(f" = mul i64 {self.index}," in line for line in self.body)

    def scalar(self, head: str, firsts: str) -> list[str]:
        """Return the loop over single elements, with the label ``head``.

        ``firsts`` are the entries of the induction variable's phi for the blocks before the loop.
        """
        k = self.index
        return [
            f"{head}:",
            f"  {k} = phi i64 {firsts}, [ {k}.next, %{head} ]",
            *self.body,
            f"  {k}.next = add nuw nsw i64 {k}, 1",
            f"  {k}.more = icmp ult i64 {k}.next, {self.count}",
            f"  br i1 {k}.more, label %{head}, label %{self.end}",
        ]


class _Module:
    """Module whose loops over elements are rewritten."""

    def __init__(self, ir: str, target: VectorTarget) -> None:
        self.target = target
        self.lines = ir.split("\n")
        self.functions = Functions(self.lines)
        self.rests = {m[1]: int(m[2]) for line in self.lines if (m := _REST.match(line))}
        self.room = {m[1]: int(m[2]) for line in self.lines if (m := _ALLOCA.match(line))}
        self.interleave = {m[1]: int(m[2]) for line in self.lines if (m := _INTERLEAVE.match(line))}

    def text(self) -> str:
        """Return the rewritten module. Raises NoVectorsError if a loop cannot be vectorized."""
        written: list[str] = []
        at = 0
        while at < len(self.lines):
            line = self.lines[at]
            if line.startswith("element") and line.endswith(":"):
                at, loop = self.parsed(at)
                written += self.written(loop)
            elif line.startswith("define internal") and "alwaysinline" in line:
                at = self.lines.index("}", at)  # added below if a line calls it
            else:
                written.append(line)
            at += 1
        return "\n".join([*self.functions.called_by(written), *written])

    def parsed(self, at: int) -> tuple[int, _Loop]:
        """Return the loop whose label is line ``at``, after the number of its last line."""
        phi = _PHI.match(self.lines[at + 1])
        if phi is None:
            raise NoVectorsError(self.lines[at + 1])
        end = at + 2
        while not self.lines[end].startswith("  %next_k"):
            end += 1
        less, back = _LESS.match(self.lines[end + 1]), _BACK.match(self.lines[end + 2])
        if less is None or back is None:
            raise NoVectorsError(self.lines[end + 1])
        count = less[1]
        most = int(count) if count.isdigit() else self.rests.get(count)
        body, interleave = self.lines[at + 2 : end], self.interleave.get(back[2], 1)
        return end + 2, _Loop(phi[1], phi[2], phi[3], back[1], body, count, most, interleave)

    # ---- loops
    def written(self, loop: _Loop) -> list[str]:
        """Return the lines that replace ``loop``, from its label to the branch to its end."""
        needs = self.functions.about(loop.body)
        size = self.size(loop.body, needs)
        if size > _LARGEST:
            raise NoVectorsError(loop.head)
        has_masks = self.target.has_masks
        strided = loop.strided_accesses
        least = strided * (_PER_GATHERED if has_masks else _PER_COLLECTED)
        if needs.any_lanes and needs.weight + _SLOW * needs.slow < least:
            return loop.scalar(loop.head, f"[ 0, %{loop.before} ]")
        lanes = self.target.register_bytes // (
            size if has_masks else max(min(size, 4), _in_memory(loop.body))
        )
        head = f"{loop.head}:"
        most = loop.most or 0
        if most and is_short(needs, most, lanes) and (has_masks or loop.is_constant):
            return [
                head,
                f"  {loop.index} = bitcast i64 0 to i64",
                *self.straight(loop, most, size),
                f"  br label %{loop.end}",
            ]
        if loop.is_constant and int(loop.count) % lanes == 0:
            return self.full_rounds(loop, loop.count, lanes, loop.end)
        several = 1 if strided else max(self.side_by_side(needs.weight), loop.interleave)
        wide = lanes * several
        wide = next((n for n in (wide, lanes, 2 * lanes) if needs.supports(n)), lanes)
        if not has_masks:
            return self.without_masks(loop, wide, needs)
        if needs.weight <= _TWICE:
            few = lanes if needs.supports(lanes) else wide
            return self.full_rounds_and_rest(loop, wide, few, size)
        return self.masked(loop, wide, size)

    def side_by_side(self, weight: int) -> int:
        """Return the number of registers per value in a loop over full registers.

        It is 1 without masks, because the remainder, which is computed element by element, should be short.
        """
        if not self.target.has_masks:
            return 1
        return _SIDE_BY_SIDE if weight <= _FOUR else 2 if weight <= _TWO else 1

    def size(self, body: list[str], needs: Needs) -> int:
        """Return the bytes of the largest element type in ``body``, apart from induction variables and addresses."""
        values = [
            line for line in body if " i64 %k" not in line and " = getelementptr " not in line
        ]
        found = [t for line in values for t in TYPE.findall(line)]
        return max([needs.size, *map(size_of, found)])

    def straight(self, loop: _Loop, lanes: int, size: int) -> Iterator[str]:
        """Yield the lines of the loop as one round of ``lanes`` elements, masked if the count is not constant."""
        mask: str | None = None
        lines: list[str] = []
        if not loop.is_constant:
            mask, lines = _mask(loop.count, lanes, size, loop.index)
        yield from lines
        yield from self.widened(loop, lanes, mask, known=True)

    def widened(
        self, loop: _Loop, lanes: int, mask: str | None, *, known: bool = False
    ) -> list[str]:
        """Return the body for ``lanes`` elements under ``mask``, or for all if it is None.

        ``known`` tells that no round follows, so that stores to stack arrays may exceed the active elements.
        """
        room = {a for a, n in self.room.items() if n >= lanes} if known else set()
        scope = VectorLines(self.functions, lanes, mask, frozenset(room), f"{loop.index}.")
        return scope.body(loop.index, loop.body)

    def full_rounds(self, loop: _Loop, count: str, lanes: int, end: str) -> list[str]:
        """Return the loop in unmasked rounds of ``lanes`` elements. ``count`` must be a multiple of ``lanes``."""
        k = loop.index
        return [
            f"{loop.head}:",
            f"  {k} = phi i64 [ 0, %{loop.before} ], [ {k}.next, %{loop.head} ]",
            *self.widened(loop, lanes, None),
            f"  {k}.next = add nuw nsw i64 {k}, {lanes}",
            f"  {k}.more = icmp ult i64 {k}.next, {count}",
            f"  br i1 {k}.more, label %{loop.head}, label %{end}",
        ]

    def masked(self, loop: _Loop, lanes: int, size: int) -> list[str]:
        """Return the loop in masked rounds of ``lanes`` elements. Only the last round computes its mask."""
        k, head, v, every = loop.index, loop.head, f"<{lanes} x i1>", "splat (i1 true)"
        mask, lines = _mask(f"{k}.left", lanes, size, k)
        return [
            f"{head}:",
            f"  {k}.enough = icmp uge i64 {loop.count}, {lanes}",
            f"  br i1 {k}.enough, label %{head}.round, label %{head}.last",
            f"{head}.last:",
            f"  {k}.at = phi i64 [ 0, %{head} ], [ {k}.next, %{head}.over ]",
            f"  {k}.left = sub i64 {loop.count}, {k}.at",
            *lines,
            f"  br label %{head}.round",
            f"{head}.round:",
            f"  {k} = phi i64 [ 0, %{head} ], [ {k}.at, %{head}.last ], [ {k}.next, %{head}.round ]",
            f"  {k}.those = phi {v} [ {every}, %{head} ], [ {mask}, %{head}.last ], [ {every}, %{head}.round ]",
            *self.widened(loop, lanes, f"{k}.those"),
            f"  {k}.next = add nuw nsw i64 {k}, {lanes}",
            f"  {k}.after = add nuw nsw i64 {k}, {2 * lanes}",
            f"  {k}.whole = icmp ule i64 {k}.after, {loop.count}",
            f"  br i1 {k}.whole, label %{head}.round, label %{head}.over",
            f"{head}.over:",
            f"  {k}.more = icmp ult i64 {k}.next, {loop.count}",
            f"  br i1 {k}.more, label %{head}.last, label %{loop.end}",
        ]

    def full_rounds_and_rest(self, loop: _Loop, lanes: int, few: int, size: int) -> list[str]:
        """Return the loop in unmasked rounds of ``lanes`` elements, then masked rounds of ``few`` for the remainder."""
        k, head = loop.index, loop.head
        mask, lines = _mask(f"{k}.left", few, size, k)
        rest = [
            f"  {k} = phi i64 [ {k}.first, %{head}.rest ], [ {k}.next, %{head}.few ]",
            f"  {k}.left = sub i64 {loop.count}, {k}",
            *lines,
            *self.widened(loop, few, mask),
            f"  {k}.next = add nuw nsw i64 {k}, {few}",
            f"  {k}.more = icmp ult i64 {k}.next, {loop.count}",
            f"  br i1 {k}.more, label %{head}.few, label %{loop.end}",
        ]
        if few == lanes:
            rest[0] = f"  {k} = bitcast i64 {k}.first to i64"
            rest[-3:] = [f"  br label %{loop.end}"]
        return [
            f"{head}:",
            *self.rounds(loop, head, lanes),
            f"{head}.rest:",
            f"  {k}.first = phi i64 [ 0, %{head} ], [ {k}.whole, %{head}.done ]",
            f"  br label %{head}.few",
            f"{head}.few:",
            *_renamed(rest, "rest"),
        ]

    def rounds(self, loop: _Loop, before: str, lanes: int) -> list[str]:
        """Return the lines that end block ``before`` and run the full rounds, then go to the loop's end or to ``rest``.

        The block ``rest`` is reached from ``before`` if there is no full round, and otherwise from ``done``.
        """
        k, head = loop.index, loop.head
        inner = replace(loop, before=before, head=f"{head}.whole")
        return [
            f"  {k}.whole = and i64 {loop.count}, {-lanes}",
            f"  {k}.some = icmp ne i64 {k}.whole, 0",
            f"  br i1 {k}.some, label %{head}.whole, label %{head}.rest",
            *self.full_rounds(inner, f"{k}.whole", lanes, f"{head}.done"),
            f"{head}.done:",
            f"  {k}.over = icmp ne i64 {k}.whole, {loop.count}",
            f"  br i1 {k}.over, label %{head}.rest, label %{loop.end}",
        ]

    def without_masks(self, loop: _Loop, lanes: int, needs: Needs) -> list[str]:
        """Return the loop in full rounds, then half a round if the body is short, then single elements.

        If the loop never has a full round, its rounds have half the length.
        """
        k, head = loop.index, loop.head
        if loop.most and loop.most <= lanes and needs.supports(lanes // 2):
            lanes //= 2
        half = lanes // 2
        if needs.weight > _TWO or half < 2 or not needs.supports(half):
            rest = loop.scalar(f"{head}.rest", f"[ 0, %{head} ], [ {k}.whole, %{head}.done ]")
            return [f"{head}:", *self.rounds(loop, head, lanes), *_renamed(rest, "rest")]
        once = [
            f"  {k} = bitcast i64 {k}.first to i64",
            *self.widened(loop, half, None),
            f"  {k}.next = add nuw nsw i64 {k}, {half}",
            f"  {k}.more = icmp ult i64 {k}.next, {loop.count}",
            f"  br i1 {k}.more, label %{head}.ones, label %{loop.end}",
        ]
        ones = loop.scalar(
            f"{head}.ones",
            f"[ 0, %{head} ], [ {k}.first, %{head}.rest ], [ {k}.next.half, %{head}.half ]",
        )
        return [
            f"{head}:",
            f"  {k}.few = icmp ult i64 {loop.count}, {half}",
            f"  br i1 {k}.few, label %{head}.ones, label %{head}.many",
            f"{head}.many:",
            *self.rounds(loop, f"{head}.many", lanes),
            f"{head}.rest:",
            f"  {k}.first = phi i64 [ 0, %{head}.many ], [ {k}.whole, %{head}.done ]",
            f"  {k}.left = sub i64 {loop.count}, {k}.first",
            f"  {k}.enough = icmp uge i64 {k}.left, {half}",
            f"  br i1 {k}.enough, label %{head}.half, label %{head}.ones",
            f"{head}.half:",
            *_renamed(once, "half"),
            *_renamed(ones, "ones"),
        ]


def _in_memory(body: list[str]) -> int:
    """Return the bytes of the largest element that ``body`` loads or stores, or 1.

    Values of larger types then take several registers.
    """
    accesses = [line for line in body if " = load " in line or line.startswith("  store ")]
    return max([1, *(size_of(t) for line in accesses for t in TYPE.findall(line))])


def _renamed(lines: list[str], suffix: str) -> list[str]:
    """Return ``lines`` with ``suffix`` appended to the names of all values that they define."""
    named = {m[1]: f"{m[1]}.{suffix}" for line in lines if (m := _DEFINED.match(line))}
    return [_VALUE.sub(lambda m: named.get(m[0], m[0]), line) for line in lines]


def is_short(needs: Needs, count: int, lanes: int) -> bool:
    """Return whether a loop of at most ``count`` iterations is written as one round for all of them."""
    if count & (count - 1) or not needs.supports(count):
        return False
    registers = max(count // lanes, 1)
    few = registers == 1 or registers * needs.weight <= _STRAIGHT
    return few and registers <= _SIDE_BY_SIDE


def _mask(count: str, lanes: int, size: int, name: str) -> tuple[str, list[str]]:
    """Return the name of the mask of the first ``count`` (< ``lanes``) elements, and the lines that compute it.

    ``size`` is the bytes of the integers that are compared.
    """
    t = f"i{8 * size}"
    numbers = ", ".join(f"{t} {i}" for i in range(lanes))
    lines, few = [], count
    if size < _LARGEST:
        few = f"{name}.few"
        lines = [f"  {few} = trunc i64 {count} to {t}"]
    v = f"<{lanes} x {t}>"
    return f"{name}.mask", [
        *lines,
        *(f"  {line}" for line in spread(t, lanes, few, f"{name}.all")),
        f"  {name}.mask = icmp ult {v} <{numbers}>, {name}.all",
    ]
