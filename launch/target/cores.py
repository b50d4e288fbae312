"""Number of this machine's cores that an executable's devices have, for predictions of its steps."""

from __future__ import annotations

import os

from launch.ranks.rank_executable import RankExecutable
from runtime.executable import Executable


def cores_of(executable: Executable) -> int:
    """Return the cores that the devices share: a rank may be bound to one of them, and others to the others."""
    if not isinstance(executable, RankExecutable):
        return len(os.sched_getaffinity(0))
    of_each = executable.communicator.cores
    devices = executable.num_devices
    return devices * of_each if of_each > 1 else min(devices, os.cpu_count() or 1)
