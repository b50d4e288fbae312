"""Chains of causes: the path from an annotation to each axis of a value's sharding.

dimension 0 split over dp: annotation of parameter x -> dot.3 -> add.4
"""

from __future__ import annotations

from partitioner.explain.axis_names import AxisNames
from partitioner.propagation.driver import ValueSharding

#: Number of links that a text shows at either end of a chain.
_SHOWN = 3


def axis_chain(sharding: ValueSharding, axis: int) -> tuple[str, ...]:
    """Return the names from the annotation that first demanded ``axis`` to the op that brought it to ``sharding``."""
    found: list[str] = []
    seen: list[ValueSharding] = []
    here: ValueSharding | None = sharding
    while here is not None and not any(here is other for other in seen):
        seen.append(here)
        cause = here.causes.get(axis)
        if cause is None:
            break
        if not found or found[-1] != cause.by:
            found.append(cause.by)
        here = cause.source
    return tuple(reversed(found))


def axis_source(sharding: ValueSharding, axis: int) -> ValueSharding:
    """Return the value whose annotation demanded ``axis``."""
    seen = [sharding]
    while (cause := seen[-1].causes.get(axis)) is not None and cause.source is not None:
        if any(cause.source is other for other in seen):
            break
        seen.append(cause.source)
    return seen[-1]


def sharding_causes(sharding: ValueSharding, names: AxisNames) -> tuple[str, ...]:
    """Return one line per axis that splits the value. For an unsplit value, name the annotation that causes
    it, if any.
    """
    lines = [
        f"dimension {dim} split over {names[axis]}: {_arrows(axis_chain(sharding, axis))}"
        for dim, dim_axes in enumerate(sharding.dims)
        for axis in dim_axes
    ]
    if sharding.forbidden:
        lines.append(f"manual axes {names.join(sharding.forbidden)}")
    if lines:
        return tuple(lines)
    return (
        f"no split: annotation of {sharding.because}"
        if sharding.because
        else "no split: no annotation reaches it",
    )


def _arrows(chain: tuple[str, ...]) -> str:
    if not chain:
        return "unknown"
    shown = chain
    if len(chain) > 2 * _SHOWN:
        hidden = f"... {len(chain) - 2 * _SHOWN} more ..."
        shown = (*chain[:_SHOWN], hidden, *chain[-_SHOWN:])
    return "annotation of " + " -> ".join(shown)
