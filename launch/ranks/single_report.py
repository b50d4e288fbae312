"""One error message per node and failure: the first process of a node that claims the report writes it."""

from __future__ import annotations

import socket
import sys

from collectives.communicator.liveness.process_state import ProcessId


def claim_report(launcher: ProcessId) -> bool:
    """Claim the report of a failure of ``launcher``'s job on this node. Returns True for the first process that calls.

    The claim is the name of an abstract socket, which only one process at a time can bind and which vanishes with the
    process, without a file. On systems other than Linux every call returns True.
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
