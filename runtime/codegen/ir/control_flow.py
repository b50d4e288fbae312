"""Loops that carry values from round to round, and branches that yield values, with their blocks and phis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from runtime.codegen.elements.builder import Value
from runtime.codegen.ir.values import typed

if TYPE_CHECKING:
    from runtime.codegen.ir.function_writer import FunctionWriter


class Repetition:
    """Loop that carries ``values`` from round to round. ``again`` begins the next round, ``leave`` ends the loop.

    Code after the loop may use the last round's values. A round that reaches the end of the loop's code leaves the
    loop.
    """

    def __init__(self, writer: FunctionWriter, start: Sequence[Value]) -> None:
        self._writer = writer
        self._start = start
        self._exit = ""

    def __enter__(self) -> Self:
        writer, start = self._writer, self._start
        self._head = writer.label()
        self._rounds: list[tuple[Sequence[Value], str]] = [(start, writer.block)]
        writer.jump(self._head)
        writer.begin(self._head)
        writer.names += 1
        mark = writer.names
        self._phis = len(writer._lines)
        self.values: list[Any] = [
            typed(writer, value.type, f"%p{mark}_{n}") for n, value in enumerate(start)
        ]
        writer._lines.extend([""] * len(start))
        return self

    def again(self, *values: Value | int, when: Value | None = None) -> None:
        """Begin the next round with ``values`` if the condition ``when`` holds. Python numbers are 64-bit words."""
        writer = self._writer
        given = [writer.constant(x) if isinstance(x, int) else x for x in values]
        self._rounds.append((given, writer.block))
        if when is None:
            writer.jump(self._head)
        else:
            following = writer.label()
            writer.branch(when, self._head, following)
            writer.begin(following)

    def leave(self, when: Value | None = None) -> None:
        """Leave the loop if the condition ``when`` holds."""
        if when is None:
            self._writer.jump(self.exit())
            return
        following = self._writer.label()
        self._writer.branch(when, self.exit(), following)
        self._writer.begin(following)

    def exit(self) -> str:
        """Return the label of the block after the loop."""
        self._exit = self._exit or self._writer.label("e")
        return self._exit

    def __exit__(self, *_: object) -> None:
        """Write the phis, and begin the block after the loop if any round leaves the loop."""
        writer = self._writer
        for n, value in enumerate(self.values):
            came = ", ".join([f"[ {given[n].name}, %{block} ]" for given, block in self._rounds])
            writer._lines[self._phis + n] = f"  {value.name} = phi {value.type} {came}"
        if not self._exit:
            return
        if writer.block:
            writer.jump(self._exit)
        writer.begin(self._exit)


class Branch:
    """Branch on ``condition``. The code written first runs if it holds, the code after ``otherwise`` if not."""

    def __init__(self, writer: FunctionWriter, condition: Value | str) -> None:
        self._writer = writer
        self._condition = condition

    def __enter__(self) -> Self:
        writer = self._writer
        self._before = writer.block
        then, self._other = writer.labels("t", "f")
        self._end = ""
        self._ends: list[str] = []
        writer.branch(self._condition, then, self._other)
        writer.begin(then)
        return self

    def otherwise(self) -> None:
        """Begin the code that runs if the condition does not hold."""
        self._end = self._writer.label("e")
        self._leave(self._end)
        self._writer.begin(self._other)

    def _leave(self, label: str) -> None:
        self._ends.append(self._writer.block)
        if self._writer.block:
            self._writer.jump(label)

    def __exit__(self, *_: object) -> None:
        """End the branch. No block follows if both sides have returned."""
        writer = self._writer
        self._leave(self._end or self._other)
        if not self._end:
            self._ends.append(self._before)
        if any(self._ends):
            writer.begin(self._end or self._other)
        self._behind = writer.block, len(writer._lines)

    def merged(self, taken: Value | int, other: Value | int) -> Any:
        """Return ``taken`` if the condition held, else ``other``. Python numbers are 64-bit words.

        It must be called in the block after the branch.
        """
        writer = self._writer
        block, at = self._behind
        assert writer.block == block, "code behind other blocks has no phi of this one"
        pairs = [writer.constant(x) if isinstance(x, int) else x for x in (taken, other)]
        came = ", ".join(
            [f"[ {x.name}, %{end} ]" for x, end in zip(pairs, self._ends, strict=True) if end]
        )
        kind = pairs[0].type
        name = f"%{writer.label('v')}"
        writer._lines.insert(at, f"  {name} = phi {kind} {came}")
        return typed(writer, kind, name)
