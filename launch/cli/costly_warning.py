"""The warning about costly reshards that commands write to standard error."""

from __future__ import annotations

import sys

from launch.report.costly_reshards import costly_reshards
from partitioner.spmd_partitioner import SpmdPartitioner

#: Reshards that a warning names; `spmd explain --strict` names all.
MOST_NAMED = 5


def warn_costly(done: SpmdPartitioner) -> None:
    """Name the values that the program moves at much more than the least possible; silent where there is none."""
    found = costly_reshards(done)
    for one in found[:MOST_NAMED]:
        sys.stderr.write(
            f"spmd: warning: costly reshard of {one.op} for {one.used_by}: {one.shape} from {one.source} to "
            f"{one.target} receives {one.bytes:,.0f} bytes, the least possible is {one.bound:,.0f}\n"
        )
    if len(found) > MOST_NAMED:
        sys.stderr.write(
            f"spmd: warning: {len(found) - MOST_NAMED} more costly reshards (spmd explain --strict 4096)\n"
        )
