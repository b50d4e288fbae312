"""Typed bindings of NCCL, called by ctypes in the library that CuPy loads.

CuPy's own binding ``NcclCommunicator`` (14.2) does not suffice: it has no nonblocking communicators (``blocking = 0``),
takes ``ncclInProgress`` for an error, and has no limit of CTAs. With it, a rank whose peer fails during start-up would
wait forever.
"""

from __future__ import annotations

import ctypes
from dataclasses import field
from enum import IntEnum
from typing import Any

from collectives.communicator.actions.device_actions import NcclOperation, NcclType
from spmd.errors import RunError
from spmd.lazy_dataclass import dataclass

#: Size of an ncclUniqueId.
UNIQUE_ID_BYTES = 128
#: Color of a rank that gets no communicator from a split (NCCL_SPLIT_NOCOLOR).
NO_COLOR = -1


class NcclResult(IntEnum):
    """Result code of an NCCL function (ncclResult_t)."""

    SUCCESS = 0
    UNHANDLED_CUDA_ERROR = 1
    SYSTEM_ERROR = 2
    INTERNAL_ERROR = 3
    INVALID_ARGUMENT = 4
    INVALID_USAGE = 5
    REMOTE_ERROR = 6
    IN_PROGRESS = 7
    TIMEOUT = 8


@dataclass
class NcclComm:
    """Handle of one rank's NCCL communicator (ncclComm_t).

    NCCL writes the handle to ``cell`` when it has created the communicator. In nonblocking mode this may be after the
    function that creates it has returned.
    """

    cell: ctypes.c_void_p = field(default_factory=ctypes.c_void_p)

    @property
    def address(self) -> int:
        """Return the handle; 0 if the communicator is not yet created or was aborted."""
        return self.cell.value or 0


@dataclass(frozen=True)
class CommConfig:
    """Configuration of a communicator (ncclConfig_t).

    ``blocking``: functions return only when they are complete. ``max_ctas``: the largest number of CTAs (thread blocks)
    that a collective may use on the GPU; None leaves the choice to NCCL.
    """

    blocking: bool = True
    max_ctas: int | None = None


class NcclError(RunError):
    """Error of an NCCL function that failed."""


class _Config(ctypes.Structure):
    """ncclConfig_t of NCCL 2.18. Newer libraries treat the fields that they have in addition as undefined."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cga_cluster_size", ctypes.c_int),
        ("min_ctas", ctypes.c_int),
        ("max_ctas", ctypes.c_int),
        ("net_name", ctypes.c_char_p),
        ("split_share", ctypes.c_int),
    )


class _UniqueId(ctypes.Structure):
    """ncclUniqueId: bytes that NCCL passes by value."""

    _fields_ = (("internal", ctypes.c_char * UNIQUE_ID_BYTES),)


#: NCCL_CONFIG_UNDEF_INT: NCCL chooses the value of the field.
_UNDEFINED = -(2**31)
#: Value of the field ``magic``, by which NCCL recognizes an initialized ncclConfig_t.
_MAGIC = 0xCAFEBEEF
#: NCCL 2.18, whose ncclConfig_t is ``_Config``.
_LEAST_VERSION = 21800


def _config(config: CommConfig) -> _Config:
    """Return ``config`` as NCCL's struct. Fields that it does not set have NCCL's value for "undefined"."""
    return _Config(
        size=ctypes.sizeof(_Config),
        magic=_MAGIC,
        version=_LEAST_VERSION,
        blocking=int(config.blocking),
        cga_cluster_size=_UNDEFINED,
        min_ctas=_UNDEFINED,
        max_ctas=_UNDEFINED if config.max_ctas is None else config.max_ctas,
        net_name=None,
        split_share=_UNDEFINED,
    )


_P, _I, _N = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (ctypes.POINTER(_I),),
    "ncclGetUniqueId": (ctypes.POINTER(_UniqueId),),
    "ncclCommInitRankConfig": (ctypes.POINTER(_P), _I, _UniqueId, _I, ctypes.POINTER(_Config)),
    "ncclCommSplit": (_P, _I, _I, ctypes.POINTER(_P), ctypes.POINTER(_Config)),
    "ncclCommGetAsyncError": (_P, ctypes.POINTER(_I)),
    "ncclAllReduce": (_P, _P, _N, _I, _I, _P, _P),
    "ncclAllGather": (_P, _P, _N, _I, _P, _P),
    "ncclReduceScatter": (_P, _P, _N, _I, _I, _P, _P),
    "ncclBroadcast": (_P, _P, _N, _I, _I, _P, _P),
    "ncclSend": (_P, _N, _I, _I, _P, _P),
    "ncclRecv": (_P, _N, _I, _I, _P, _P),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    "ncclCommAbort": (_P,),
    "ncclCommDestroy": (_P,),
}

REGISTRATION_VERSION = 21901
"""First version of NCCL that registers memory (ncclMemAlloc, ncclCommRegister)."""

WINDOW_VERSION = 22700
"""First version of NCCL with windows (ncclCommWindowRegister)."""

#: Functions of newer versions, by the first version that has them.
_SIGNATURES_SINCE: dict[int, dict[str, tuple[Any, ...]]] = {
    REGISTRATION_VERSION: {
        "ncclMemAlloc": (ctypes.POINTER(_P), _N),
        "ncclMemFree": (_P,),
        "ncclCommRegister": (_P, _P, _N, ctypes.POINTER(_P)),
        "ncclCommDeregister": (_P, _P),
    },
    WINDOW_VERSION: {
        "ncclCommWindowRegister": (_P, _P, _N, ctypes.POINTER(_P), _I),
        "ncclCommWindowDeregister": (_P, _P),
    },
}

_SYMMETRIC = 1
"""NCCL_WIN_COLL_SYMMETRIC: all ranks pass the same offset in the window to a collective."""


def load_nccl() -> NcclLibrary:
    """Load NCCL, by CuPy. Raises RunError, with a hint for the user, if CuPy or NCCL is missing."""
    try:
        import cupy  # noqa: F401 - it finds NCCL's wheel and loads it
        from cupy.cuda import nccl

        if not nccl.available:
            raise RunError("CuPy finds no NCCL library")
        return NcclLibrary(ctypes.CDLL("libnccl.so.2"))
    except (ImportError, OSError) as error:
        raise RunError(
            f'NCCL cannot be loaded: {error}; pip install "spmd-executor[gpu]" brings CuPy and NCCL'
        ) from error


class NcclLibrary:
    """The functions of a loaded library that collectives use. Each may raise NcclError. Calls release Python's GIL.

    Collectives are enqueued on ``stream``. ``send`` and ``receive`` are addresses on the GPU, ``count`` is a number of
    elements of type ``kind``, and ``peer`` and ``root`` are ranks of the communicator.
    """

    def __init__(self, library: Any) -> None:
        """Declare the functions of ``library`` (ctypes.CDLL). Raises RunError if it is older than NCCL 2.18."""
        self._functions: dict[str, Any] = {}
        self._declare(library, _SIGNATURES)
        self._error_string, self._last_error = library.ncclGetErrorString, library.ncclGetLastError
        self._error_string.argtypes, self._error_string.restype = (_I,), ctypes.c_char_p
        self._last_error.argtypes, self._last_error.restype = (_P,), ctypes.c_char_p
        if self.version() < _LEAST_VERSION:
            raise RunError(f"NCCL {self.version()} is too old: 2.18 or newer is needed")
        for version, signatures in _SIGNATURES_SINCE.items():
            if self.version() >= version:
                self._declare(library, signatures)

    def _declare(self, library: Any, signatures: dict[str, tuple[Any, ...]]) -> None:
        for name, arguments in signatures.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, _I
            self._functions[name] = function

    def version(self) -> int:
        """Return the version of NCCL as one number: 2.30.4 is 23004."""
        found = _I()
        self._call("ncclGetVersion", ctypes.byref(found))
        return found.value

    def unique_id(self) -> bytes:
        """Return a new id of UNIQUE_ID_BYTES bytes, with which ranks create a communicator (ncclGetUniqueId)."""
        unique = _UniqueId()
        self._call("ncclGetUniqueId", ctypes.byref(unique))
        return bytes(memoryview(unique).cast("B"))

    def init_rank(self, size: int, unique_id: bytes, rank: int, config: CommConfig) -> NcclComm:
        """Begin to create the communicator of ``size`` ranks (ncclCommInitRankConfig).

        If ``config`` is nonblocking, ``async_error`` returns IN_PROGRESS until the creation succeeds or fails.
        """
        comm = NcclComm()
        unique = _UniqueId.from_buffer_copy(unique_id)
        native_config = _config(config)
        self._call(
            "ncclCommInitRankConfig",
            ctypes.byref(comm.cell), size, unique, rank, ctypes.byref(native_config),
        )  # fmt: skip
        return comm

    def split(self, parent: NcclComm, color: int, key: int, config: CommConfig) -> NcclComm:
        """Begin to create communicators of the ranks of ``parent`` with equal ``color``, by ``key`` (ncclCommSplit).

        If ``parent`` is nonblocking, ``async_error`` of ``parent`` returns IN_PROGRESS until the split is complete. A
        rank with color NO_COLOR gets no communicator: the address of its result stays 0.
        """
        comm = NcclComm()
        native_config = _config(config)
        self._call(
            "ncclCommSplit",
            parent.address, color, key, ctypes.byref(comm.cell), ctypes.byref(native_config),
        )  # fmt: skip
        return comm

    def async_error(self, comm: NcclComm) -> NcclResult:
        """Return the asynchronous state of ``comm`` (ncclCommGetAsyncError)."""
        found = _I()
        self._call("ncclCommGetAsyncError", comm.address, ctypes.byref(found))
        return _known(found.value)

    def describe(self, comm: NcclComm | None, result: NcclResult) -> str:
        """Return the text of ``result``, followed by NCCL's last error message if there is one."""
        said = (self._error_string(int(result)) or b"").decode(errors="replace")
        more = (self._last_error(comm.address if comm else None) or b"").decode(errors="replace")
        return f"{said} ({' '.join(more.split())})" if more.strip() else said

    def all_reduce(
        self, comm: NcclComm, send: int, receive: int, count: int, kind: NcclType, operation: NcclOperation, stream: int
    ) -> None:  # fmt: skip
        """Enqueue ncclAllReduce."""
        self._call("ncclAllReduce", send, receive, count, kind, operation, comm.address, stream)

    def all_gather(
        self, comm: NcclComm, send: int, receive: int, count: int, kind: NcclType, stream: int
    ) -> None:
        """Enqueue ncclAllGather. ``count`` is the number of elements that each rank sends."""
        self._call("ncclAllGather", send, receive, count, kind, comm.address, stream)

    def reduce_scatter(
        self, comm: NcclComm, send: int, receive: int, count: int, kind: NcclType, operation: NcclOperation, stream: int
    ) -> None:  # fmt: skip
        """Enqueue ncclReduceScatter. ``count`` is the number of elements that each rank receives."""
        self._call("ncclReduceScatter", send, receive, count, kind, operation, comm.address, stream)

    def broadcast(
        self, comm: NcclComm, send: int, receive: int, count: int, kind: NcclType, root: int, stream: int
    ) -> None:  # fmt: skip
        """Enqueue ncclBroadcast. ``send`` is used only on rank ``root``."""
        self._call("ncclBroadcast", send, receive, count, kind, root, comm.address, stream)

    def send(
        self, comm: NcclComm, send: int, count: int, kind: NcclType, peer: int, stream: int
    ) -> None:
        """Enqueue ncclSend to rank ``peer``."""
        self._call("ncclSend", send, count, kind, peer, comm.address, stream)

    def receive(
        self, comm: NcclComm, receive: int, count: int, kind: NcclType, peer: int, stream: int
    ) -> None:
        """Enqueue ncclRecv from rank ``peer``."""
        self._call("ncclRecv", receive, count, kind, peer, comm.address, stream)

    def group_start(self) -> None:
        """Begin a group of calls, which NCCL launches together (ncclGroupStart)."""
        self._call("ncclGroupStart")

    def group_end(self) -> None:
        """End the group of calls and launch it (ncclGroupEnd)."""
        self._call("ncclGroupEnd")

    def abort(self, comm: NcclComm) -> None:
        """Free ``comm`` and stop its work, on the GPU as well (ncclCommAbort). Any thread may call it."""
        address, comm.cell.value = comm.address, None
        if address:
            self._call("ncclCommAbort", address)

    def destroy(self, comm: NcclComm) -> None:
        """Free ``comm``, none of whose work is in flight or in a CUDA graph (ncclCommDestroy).

        The call waits until the ranks of this node that are in ``comm`` destroy it, or end.
        """
        address, comm.cell.value = comm.address, None
        if address:
            self._call("ncclCommDestroy", address)

    # ---- memory, from REGISTRATION_VERSION on
    def mem_alloc(self, num_bytes: int) -> int:
        """Allocate memory of the current GPU that can be registered, and return its address (ncclMemAlloc)."""
        address = _P()
        self._call("ncclMemAlloc", ctypes.byref(address), num_bytes)
        return address.value or 0

    def mem_free(self, address: int) -> None:
        """Free memory from ``mem_alloc`` (ncclMemFree)."""
        self._call("ncclMemFree", address)

    def register(self, comm: NcclComm, address: int, num_bytes: int) -> int:
        """Register memory from ``mem_alloc`` with ``comm`` (ncclCommRegister).

        Returns a handle; 0 if NCCL does not register memory here.
        """
        handle = _P()
        self._call("ncclCommRegister", comm.address, address, num_bytes, ctypes.byref(handle))
        return handle.value or 0

    def deregister(self, comm: NcclComm, handle: int) -> None:
        """End the registration ``handle`` of ``register`` (ncclCommDeregister)."""
        self._call("ncclCommDeregister", comm.address, handle)

    def register_window(self, comm: NcclComm, address: int, num_bytes: int) -> int:
        """Register memory from ``mem_alloc`` as a symmetric window (ncclCommWindowRegister, from WINDOW_VERSION on).

        All ranks of ``comm`` must call it, and it waits for them. Returns a handle; 0 on all ranks if ``comm`` does not
        support windows, for example because its GPUs cannot access each other's memory.
        """
        handle = _P()
        self._call(
            "ncclCommWindowRegister",
            comm.address, address, num_bytes, ctypes.byref(handle), _SYMMETRIC,
        )  # fmt: skip
        return handle.value or 0

    def deregister_window(self, comm: NcclComm, handle: int) -> None:
        """Free the window ``handle`` of ``register_window``. It does not wait for other ranks."""
        self._call("ncclCommWindowDeregister", comm.address, handle)

    def _call(self, function: str, *arguments: object) -> None:
        """Call ``function``. Raises NcclError unless its result is SUCCESS or IN_PROGRESS."""
        result = self._functions[function](*arguments)
        if result not in (NcclResult.SUCCESS, NcclResult.IN_PROGRESS):
            raise NcclError(f"{function}: {self.describe(None, _known(result))}")


def _known(result: int) -> NcclResult:
    """Return the NcclResult of a result code; INTERNAL_ERROR for codes without a name here."""
    try:
        return NcclResult(result)
    except ValueError:  # a code of a newer library
        return NcclResult.INTERNAL_ERROR
