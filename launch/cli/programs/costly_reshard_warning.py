"""The warning about costly reshards that commands write to standard error."""

from __future__ import annotations

from launch.report.costly_reshards import costly_reshards
from partitioner.spmd_partitioner import SpmdPartitioner

#: Number of reshards that a warning names; `spmd explain --strict` names all.
MOST_NAMED = 5


def costly_warning(done: SpmdPartitioner) -> str:
    """Return a warning with the values whose moves receive far more than the lower bound; "" if there are none."""
    found = costly_reshards(done)
    lines = [
        f"spmd: warning: costly reshard of {one.op} for {one.used_by}: {one.shape} from {one.source} to "
        f"{one.target} receives {one.bytes:,.0f} bytes, the least possible is {one.bound:,.0f}\n"
        for one in found[:MOST_NAMED]
    ]
    if len(found) > MOST_NAMED:
        more = len(found) - MOST_NAMED
        lines.append(
            f"spmd: warning: {more} more costly reshards (spmd explain --strict 4096 lists all)\n"
        )
    return "".join(lines)
