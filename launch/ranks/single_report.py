"""One error message per failure: the ranks of a node choose, without communication, the one that reports it."""

from __future__ import annotations

import socket
import sys

from collectives.communicator.liveness.process_state import ProcessId


def claim_report(launcher: ProcessId) -> bool:
    """Return True to the first process of ``launcher``'s job on this node that asks; to all if no system tells.

    An abstract socket's name is taken by one process at a time, and is gone when that ends: there is no file.
    """
    if not sys.platform.startswith("linux"):
        return True
    name = f"\0spmd-executor report {launcher.pid} {launcher.started}"
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(name)
    except OSError:
        claim.close()
        return False
    claim.detach()  # the process holds the name until it ends
    return True
