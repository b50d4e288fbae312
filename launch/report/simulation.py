"""A simulation for scripts and for readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from collectives.simulate.reasons import brief
from collectives.simulate.result import CollectiveResult, ResourceUse, Simulation, StepRange
from collectives.simulate.waterfall import Waterfall
from launch.ranks.messages import printable_lines
from launch.report.figures import bar, percent, size_text
from spmd.machine.description import MachineDescription


def as_json(
    found: Simulation, machine: MachineDescription, parts: Waterfall | None = None
) -> dict[str, Any]:
    """Return the simulation as JSON: seconds and bytes of one device; of a collective, of all its
    executions in a step. ``parts`` is what the step consists of; None if it was not asked for.
    """
    return {
        "module": found.module,
        "topology": machine.name,
        "devices": found.devices,
        "step_s": found.seconds,
        "range_s": [found.step_range.best, found.step_range.worst] if found.step_range else None,
        "waterfall_s": dict(parts_of(parts)) if parts else None,
        "compute_s": found.compute,
        "slowed_s": found.slowed,
        "communication_s": found.communication,
        "exposed_s": found.exposed,
        "lower_bound_s": found.bound.seconds,
        "lower_bound_by": found.bound.what,
        "hiding": _hiding(found),
        "peak_bytes": found.peak_bytes,
        "memory_limit": machine.memory_limit,
        "fits": fits(found, machine),
        "device": found.device,
        "device_classes": found.classes,
        "resources": [
            {
                "name": one.name,
                "busy_s": one.busy,
                "hideable_s": one.hideable,
                "hidden_s": one.hidden,
                "hidden_share": one.share,
            }
            for one in found.resources
        ],
        "collectives": [
            {
                "op": one.name,
                "kind": one.kind,
                "bytes": one.bytes,
                "group_size": one.group_size,
                "algorithm": one.algorithm,
                "executions": one.executions,
                "time_s": one.seconds,
                "exposed_s": one.exposed,
                "why": one.why,
                "causes": {cause.value: seconds for cause, seconds in one.causes},
            }
            for one in found.collectives
        ],
        "notes": list(found.notes),
    }


def fits(found: Simulation, machine: MachineDescription) -> bool:
    """Return whether what is live at most lies within what a device of the machine has for programs."""
    return found.peak_bytes <= machine.memory_limit


def _hiding(found: Simulation) -> dict[str, Any] | None:
    least = found.least
    if least is None:
        return None
    hidden = least.hidden(found.seconds)
    return {
        "waiting_s": least.waiting,
        "bound_s": least.seconds,
        "bound_by": least.what,
        "idle_s": least.idle,
        "hideable_s": least.hideable,
        "hidden_s": hidden,
        "hidden_share": hidden / least.hideable if least.hideable else None,
        "pieces": least.pieces,
    }


def parts_of(parts: Waterfall) -> Iterator[tuple[str, float]]:
    """Yield the name and the seconds of each part."""
    return ((one.name, getattr(parts, one.name)) for one in fields(Waterfall))


def format_simulation(
    found: Simulation, machine: MachineDescription, most: int, parts: Waterfall | None = None
) -> str:
    """Return the simulation as tables, with the ``most`` collectives that are exposed longest, and with the ``parts``
    of the step if they are given."""
    return printable_lines(
        [
            *_head(found, machine),
            "",
            *_step(found, machine),
            "",
            *(_waterfall(found, parts) if parts else ()),
            *_resources(found.resources),
            *_collectives(found, most),
            *(f"note: {note}" for note in found.notes),
        ]
    )


def _head(found: Simulation, machine: MachineDescription) -> Iterator[str]:
    classes = "" if found.classes == 1 else f", {found.classes} classes of devices"
    yield f"{found.module} on {found.devices} devices of {machine.name}{classes}"
    yield whose_step(found)


def hidden_part(found: Simulation) -> str:
    """Return a text of the part of the communication in which the device computes; "" if there is no communication."""
    if not found.communication:
        return ""
    hidden = max(found.communication - found.exposed, 0.0)
    return f", {percent(hidden, found.communication)} of it hidden"


def whose_step(found: Simulation) -> str:
    """Return a text of the device whose step is simulated, and of how many devices behave like it."""
    others = found.devices - found.class_size
    like = "all devices" if not others else f"{found.class_size} of {found.devices} devices"
    return f"one step of device {found.device}; {like} behave alike"


def _step(found: Simulation, machine: MachineDescription) -> Iterator[str]:
    total = found.seconds
    parts = [("compute", found.compute), ("slowed", found.slowed), ("exposed", found.exposed)]
    yield f"  step           {brief(total):>9}{_range(found.step_range)}"
    for name, seconds in parts:
        yield f"  {name:<14} {brief(seconds):>9}  {bar(seconds, total)} {percent(seconds, total)}"
    yield (
        f"  communication  {brief(found.communication):>9}  {bar(found.communication, total)} "
        f"{percent(found.communication, total)}{hidden_part(found)}"
    )
    yield f"  lower bound    {brief(found.bound.seconds):>9}  {found.bound.what}; for any order of the instructions"
    yield from _in_pieces(found)
    excess = "" if fits(found, machine) else ": does not fit"
    yield (
        f"  peak memory    {size_text(found.peak_bytes):>9}  of {size_text(machine.memory_limit)}{excess}"
    )


def _range(step_range: StepRange | None) -> str:
    if step_range is None:
        return ""
    best, worst = brief(step_range.best), brief(step_range.worst)
    return f"  {best} if all devices were equally fast; at most {worst} on 95 % of such machines"


def _in_pieces(found: Simulation) -> Iterator[str]:
    least = found.least
    if least is None:
        return
    # Passes that overlap collectives may also make kernels faster, so that the step is shorter than this bound.
    if least.seconds < found.seconds:
        yield (
            f"  if split       {brief(least.seconds):>9}  {least.what}; for any order, instructions split into pieces"
        )
    hidden = least.hidden(found.seconds)
    share = (
        f", {percent(hidden, least.hideable)} of {brief(least.hideable)}" if least.hideable else ""
    )
    yield f"  no overlap     {brief(least.waiting):>9}  {brief(hidden)} hidden{share}"


#: Description of each part of a waterfall.
PART_NAMES = {
    "arithmetic": "arithmetic at published rates",
    "attained": "products: power limits, tiles and waves",
    "memory": "waiting for memory",
    "starts": "kernel dispatch and launch",
    "slowest": "the slowest device, above the median",
    "slowed": "collectives occupy processors",
    "exposed": "waiting for collectives",
}


def _waterfall(found: Simulation, parts: Waterfall) -> Iterator[str]:
    yield "  what the step consists of"
    for name, seconds in parts_of(parts):
        text = brief(max(seconds, 0.0))
        yield f"  {PART_NAMES[name]:<40} {text:>9}  {bar(seconds, found.seconds)} {percent(seconds, found.seconds)}"
    yield ""


def _resources(resources: tuple[ResourceUse, ...]) -> Iterator[str]:
    yield f"  {'links':<24} {'busy':>9} {'hideable':>9} {'hidden':>9}  share"
    for one in resources:
        yield (
            f"  {one.name:<24} {brief(one.busy):>9} {brief(one.hideable):>9} {brief(one.hidden):>9}  "
            f"{percent(one.hidden, one.hideable) if one.hideable else '-'}"
        )


def _collectives(found: Simulation, most: int) -> Iterator[str]:
    exposed = sorted(
        (one for one in found.collectives if one.exposed), key=lambda one: -one.exposed
    )
    shown = exposed[:most]
    hidden = len(found.collectives) - len(exposed)
    yield ""
    copies = sum(one.kind == "copy" for one in found.collectives)
    others = len(found.collectives) - copies
    parts = [f"{others} collective{'s' * (others != 1)}"] if others or not copies else []
    parts += [f"{copies} cop{'y' if copies == 1 else 'ies'}"] if copies else []
    counted = " and ".join(parts)
    first = "longest first" if len(shown) == len(exposed) else f"the longest {len(shown)}"
    yield f"{counted}, {hidden} hidden" + (f", {len(exposed)} exposed; {first}:" if exposed else "")
    if not shown:
        return
    width = max(len(one.name) for one in shown)
    yield (
        f"  {'op':<{width}} {'kind':<18} {'bytes':>9} {'group':>6} {'times':>5} {'time':>9} {'exposed':>9}"
    )
    longest = shown[0].exposed
    for one in shown:
        yield from _collective(one, width, longest)


def _collective(one: CollectiveResult, width: int, longest: float) -> Iterator[str]:
    yield (
        f"  {one.name:<{width}} {one.kind:<18} {size_text(one.bytes):>9} {one.group_size:>6} "
        f"{one.executions:>5} {brief(one.seconds):>9} {brief(one.exposed):>9}  "
        f"{bar(one.exposed, longest, 20)}"
    )
    yield f"  {'':<{width}} {one.why}"
