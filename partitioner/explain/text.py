"""Text form of an explanation: collectives with most bytes first, conflicts, then every sharding."""

from __future__ import annotations

from collections.abc import Iterator

from partitioner.explain.report import (
    CollectiveExplanation,
    Explanation,
    InstructionExplanation,
)
from spmd.errors import SpmdError
from spmd.name_suggestions import did_you_mean


def format_explanation(explanation: Explanation) -> str:
    """Return the text of an entire explanation."""
    lines = [*_header(explanation), "", "collectives, most bytes first"]
    for collective in explanation.collectives:
        lines += _collective(collective)
    if explanation.conflicts:
        lines += ["", "conflicts: two tensors of one op propagate different shardings"]
        lines += [f"  {c.op}: {c.text}; kept: {c.winner}" for c in explanation.conflicts]
    lines += ["", "shardings"]
    for instruction in explanation.instructions:
        lines.append(f"  {instruction.name}  {instruction.array}")
        lines += [f"      {line}" for line in instruction.because]
    return "\n".join(lines)


def format_instruction(explanation: Explanation, name: str) -> str:
    """Return one instruction and the collectives that serve it or move its result, or the collective ``name`` and its
    op.

    Raises SpmdError if neither has this name.
    """
    if not any(instruction.name == name for instruction in explanation.instructions):
        for collective in explanation.collectives:
            if collective.name == name:
                return _format_collective(explanation, collective)
    instruction = find_instruction(explanation, name)
    lines = [f"{name}  {instruction.opcode}  {instruction.array}  {instruction.sharding}"]
    lines += [f"  at {instruction.source}"] if instruction.source else []
    lines += [f"  {line}" for line in instruction.because]
    for collective in explanation.collectives:
        if name in (collective.op, collective.value):
            lines += _collective(collective, in_hlo=True)
    lines += [
        f"  conflict: {c.text}; kept: {c.winner}" for c in explanation.conflicts if c.op == name
    ]
    return "\n".join(lines)


def _format_collective(explanation: Explanation, collective: CollectiveExplanation) -> str:
    """Return the collective, and the op that it serves with its sharding."""
    lines = list(_collective(collective, in_hlo=True))
    for instruction in explanation.instructions:
        if instruction.name == collective.op:
            lines.append(f"  {instruction.name}  {instruction.opcode}  {instruction.array}")
            lines += [f"      {line}" for line in instruction.because]
    return "\n".join(lines)


def find_instruction(explanation: Explanation, name: str) -> InstructionExplanation:
    for instruction in explanation.instructions:
        if instruction.name == name:
            return instruction
    names = [instruction.name for instruction in explanation.instructions]
    names += [collective.name for collective in explanation.collectives]
    meant = did_you_mean(name, names)
    raise SpmdError(
        f"{explanation.module} has no instruction {name!r} after the simplification before partitioning{meant}"
    )


def format_costly(collectives: tuple[CollectiveExplanation, ...]) -> str:
    """Return one line per collective."""
    return "\n".join(
        f"{c.name} ({c.kind}) for {c.op}: {c.value} from {c.sharding_from} to {c.sharding_to} receives "
        f"{c.received:,.0f} bytes, the least possible is {c.bound:,.0f}"
        for c in collectives
    )


def _header(explanation: Explanation) -> Iterator[str]:
    axes = ", ".join(f"{name}={size}" for name, size in explanation.axes.items())
    yield f"{explanation.module} on {explanation.devices} devices ({axes})"
    yield (
        f"  {len(explanation.collectives)} collectives before optimization, {explanation.wire_bytes:,.0f} bytes "
        f"sent per device, {explanation.seconds * 1e6:,.1f} us"
    )
    for total in explanation.by_kind():
        times = f", executed {total.executed:g} times" if total.executed != total.count else ""
        yield (
            f"    {total.count:5d} {total.kind:<20s} {total.wire_bytes:18,.0f} bytes "
            f"{total.seconds * 1e6:12,.1f} us{times}"
        )
    yield f"  times assume {explanation.links}"
    yield "  f32[8@data,16]: the first dimension is split along mesh axis data; other axes hold replicas"
    searched = sum(c.remedies_tried is not None for c in explanation.collectives)
    if searched < len(explanation.collectives):
        yield f"  remedies were searched for {searched} of {len(explanation.collectives)} (--remedies K)"


def _collective(collective: CollectiveExplanation, *, in_hlo: bool = False) -> Iterator[str]:
    """Yield the lines of a collective. ``in_hlo``: add the shardings as HLO writes them."""
    times = f" x {collective.executed:g}" if collective.executed != 1 else ""
    yield (
        f"  {collective.name}  {collective.shape}  sends {collective.wire_bytes:,.0f} bytes{times}  "
        f"{collective.seconds * 1e6:,.1f} us{_excess(collective)}"
    )
    where = f"  ({collective.source})" if collective.source else ""
    yield f"      for {collective.op or 'the module'}{where}"
    if collective.sharding_from:
        yield f"      {collective.value}: {collective.array_from} -> {collective.array_to}"
        if in_hlo:
            yield f"      in HLO {collective.sharding_from} -> {collective.sharding_to}"
    yield from (f"      {line}" for line in collective.because)
    if collective.remedy is not None:
        yield f"      remedy: {collective.remedy.text}"
    elif collective.remedies_tried:
        tried = collective.remedies_tried
        yield f"      remedy: none of the {tried} annotations tried removes it and sends fewer bytes"


def _excess(collective: CollectiveExplanation) -> str:
    """Return the bytes that the reshard receives compared with the least that any program must receive."""
    if not collective.sharding_from:
        return ""
    if collective.received <= 1.001 * collective.bound:
        return "  (the least possible)"
    return f"  (receives {collective.received:,.0f}, the least possible is {collective.bound:,.0f})"
