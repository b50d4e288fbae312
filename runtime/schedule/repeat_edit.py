"""Edit of a scheduled computation that applies repeats (recompute.py) and can be undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from runtime.schedule.live_ranges import LiveRanges
from runtime.schedule.recompute import Repeat
from spmd.analysis.side_effects import SideEffects
from spmd.hlo import Attrs, HloInstruction
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs

Replacement: TypeAlias = dict[HloInstruction, HloInstruction]
#: Function that is called with each copy and its original.
OnCopy: TypeAlias = Callable[[HloInstruction, HloInstruction], None]


class RepeatEdit:
    """Edit that inserts the copies of ``repeats``, each just before its first reader; ``undo`` reverts it.

    It also updates the memory model of the live ranges.
    """

    def __init__(self, live_ranges: LiveRanges, repeats: Sequence[Repeat], on_copy: OnCopy) -> None:
        """Apply ``repeats`` to the computation of ``live_ranges``. ``on_copy`` is called for each copy."""
        self._live_ranges = live_ranges
        self._computation = live_ranges.model.computation
        self._on_copy = on_copy
        self._order = live_ranges.order
        self._inserted: dict[int, list[HloInstruction]] = {}
        self._copies: list[HloInstruction] = []
        self._replaced: list[tuple[HloInstruction, int, HloInstruction]] = []
        for repeat in sorted(repeats, key=lambda repeat: repeat.end):
            self._apply(repeat)
        self._edited: list[HloInstruction] = []
        for position, instruction in enumerate(self._order):
            self._edited.extend(self._inserted.get(position, ()))
            self._edited.append(instruction)
        self._computation.set_order(self._edited)
        self._reread()

    def undo(self) -> None:
        """Revert the edit of the computation and of the memory model."""
        for reader, number, operand in reversed(self._replaced):
            reader.replace_operand(number, operand)
        self._reread()
        for copy in reversed(self._copies):
            self._live_ranges.model.drop(copy)
            self._computation.remove(copy)
        self._computation.set_order(self._order)

    def forget_unused(self) -> bool:
        """Remove instructions without readers from the computation and the model. Returns whether there were any."""
        if not self._computation.remove_unused(SideEffects().of):
            return False
        for instruction in reversed(self._edited):
            if instruction.parent is None:
                self._live_ranges.model.drop(instruction)
        return True

    def _reread(self) -> None:
        """Update the model for the instructions whose operands were replaced."""
        for reader in dict.fromkeys(reader for reader, _, _ in self._replaced):
            self._live_ranges.model.reread(reader)

    def _apply(self, repeat: Repeat) -> None:
        """Copy the chain of ``repeat``, and let the late readers of its value read the copy."""
        made = dict(repeat.instead)
        for link in repeat.chain:
            made[link] = self._copy(link, made, repeat.end)
        moved = {repeat.value: made[repeat.value]}
        for position in self._live_ranges.reads_at[repeat.value]:
            if position < repeat.end:
                continue
            reader = self._order[position]
            for number, operand in enumerate(reader.operands):
                new = self._seen_through(operand, moved, position)
                if new is not operand:
                    reader.replace_operand(number, new)
                    self._replaced.append((reader, number, operand))

    def _copy(
        self, instruction: HloInstruction, made: Replacement, position: int
    ) -> HloInstruction:
        """Return a copy of ``instruction`` before ``position``. Operands in ``made`` are replaced."""
        operands = [self._seen_through(o, made, position) for o in instruction.operands]
        copy = self._computation.add(
            instruction.clone(instruction.shape, operands, attrs=self._attrs(instruction))
        )
        self._copies.append(copy)
        self._inserted.setdefault(position, []).append(copy)
        self._on_copy(copy, instruction)
        self._live_ranges.model.add(copy)
        return copy

    def _attrs(self, instruction: HloInstruction) -> Attrs:
        """Return the attributes of a copy of ``instruction``. A collective's copy gets a new channel id."""
        attrs = instruction.attrs
        module = self._computation.module
        if not isinstance(attrs, (CollectiveAttrs, CollectivePermuteAttrs)) or module is None:
            return attrs
        if attrs.channel_id is None:
            return attrs
        used = (getattr(one.attrs, "channel_id", None) for one in module.all_instructions())
        return replace(attrs, channel_id=1 + max(number for number in used if number is not None))

    def _seen_through(
        self, operand: HloInstruction, made: Replacement, position: int
    ) -> HloInstruction:
        """Return ``operand``, or its replacement in ``made``. A view of a replaced value becomes a view of the
        replacement, before ``position``.
        """
        views = []
        source = operand
        while source not in made and self._live_ranges.model.is_view(source):
            views.append(source)
            source = source.operand(0)
        if source not in made or made[source] is source:
            return operand
        new = made[source]
        for view in reversed(views):
            shown = {view.operand(0): new}
            new = self._copy(view, shown, position)
        return new
