"""Persistent MPI requests, and the addresses of the MPI functions with which native code starts and tests them.

A request handle is an int in MPICH and a pointer in Open MPI; native code treats handles as an array of byte blocks.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
from mpi4py import MPI

from collectives.communicator.group import Array, Group

TaggedMessage: TypeAlias = tuple[int, Array, int]
"""Member at the other end, array to send or receive, and MPI tag."""


class PersistentMessages:
    """Persistent requests for the messages of one exchange (``shared_actions.Messages``)."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        group: Group,
        receives: Sequence[TaggedMessage],
        sends: Sequence[TaggedMessage],
    ) -> None:
        """Create the requests on ``comm``, the communicator of ``group``.

        The arrays of the messages must not be freed while the requests are in use.
        """
        self._requests = [
            (group[member], comm.Recv_init([bytes_of(array), MPI.BYTE], member, tag))
            for member, array, tag in receives
        ]
        self._requests += [
            (group[member], comm.Send_init([bytes_of(array), MPI.BYTE], member, tag))
            for member, array, tag in sends
        ]
        requests = [request for _, request in self._requests]
        self._handles = np.frombuffer(b"".join(map(_handle, requests)), np.uint8).copy()
        self._statuses = np.zeros(len(requests) * MPI._sizeof(MPI.Status), np.uint8)
        self._error = np.zeros(1, np.int64)
        self.count = len(requests)
        arrays = [array for _, array, _ in (*receives, *sends)]
        weakref.finalize(self, _free, requests, arrays).atexit = False

    @property
    def start_all(self) -> int:
        return _function("MPI_Startall")

    @property
    def test_all(self) -> int:
        return _function("MPI_Testall")

    @property
    def requests(self) -> int:
        return int(self._handles.ctypes.data)

    @property
    def statuses(self) -> int:
        return int(self._statuses.ctypes.data)

    @property
    def error(self) -> int:
        return int(self._error.ctypes.data)

    def late(self) -> list[int]:
        """Return the ranks from which a message, or to which a message too long for an eager send, is incomplete."""
        return list(dict.fromkeys(rank for rank, one in self._requests if not one.Get_status()))

    def failure(self) -> str:
        """Return the error text of MPI_Testall or MPI_Startall, or of the first request whose status holds an error."""
        code = int(self._error[0])
        if code == MPI.ERR_IN_STATUS:
            codes = map(_error_of, self._statuses.reshape(self.count, -1))
            code = next((one for one in codes if one not in (MPI.SUCCESS, MPI.ERR_PENDING)), code)
        return str(MPI.Get_error_string(code))


def bytes_of(array: Array) -> Array:
    """Return the memory of a contiguous ``array`` as bytes, since MPI has no type for bf16."""
    return array.reshape(-1).view(np.uint8)


def _handle(request: MPI.Request) -> bytes:
    """Return the bytes of the C handle of ``request``."""
    return ctypes.string_at(MPI._addressof(request), MPI._sizeof(request))


def _error_of(status: Array) -> int:
    """Return the error code of an MPI status. ``status`` holds its bytes as the MPI library wrote them."""
    found = MPI.Status()
    ctypes.memmove(MPI._addressof(found), status.ctypes.data, status.nbytes)
    return int(found.Get_error())


@cache
def _function(name: str) -> int:
    """Return the address of a function in the MPI library that mpi4py has loaded."""
    address = ctypes.cast(getattr(ctypes.CDLL(MPI.__file__), name), ctypes.c_void_p).value
    assert address is not None, "a function lies somewhere"
    return address


_GIVEN_UP: list[tuple[MPI.Request, Sequence[Array]]] = []
"""Incomplete requests of abandoned runs, with arrays that MPI may still access. They are never freed."""


def _free(requests: Sequence[MPI.Request], arrays: Sequence[Array]) -> None:
    """Free the complete requests, and keep the others alive with the ``arrays`` that MPI may still access."""
    if not MPI.Is_finalized():
        for request in requests:
            if request.Get_status():
                request.Free()
            else:
                _GIVEN_UP.append((request, arrays))
