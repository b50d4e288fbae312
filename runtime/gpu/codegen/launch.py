"""Description of a GPU, of kernel launches and of their memory: plain data that needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from runtime.program.strides import StridedView

#: Alignment in bytes of the pointers that kernels get (see ``anchored``).
ALIGNMENT = 16
#: Threads of a warp, which exchange values without memory.
WARP = 32


@dataclass(frozen=True, slots=True)
class PtxTarget:
    """Target GPU. arch: PTX's name of a compute capability, at least 8.0. multiprocessors: their number.

    shared_bytes: shared memory of a block.
    """

    arch: str = "sm_90"
    multiprocessors: int = 132
    shared_bytes: int = 48 << 10


class ArgumentKind(Enum):
    """Kind of memory that an argument points to."""

    OPERAND = "operand"
    RESULT = "result"
    SCRATCH = "scratch"
    WORKSPACE = "workspace"
    """Memory of ``PtxLaunch.workspace_bytes``; it holds nothing before the kernel's first and after its last launch."""


@dataclass(frozen=True, slots=True, order=True)
class PtxArgument:
    """Pointer to the byte from which the view of array ``number`` counts."""

    kind: ArgumentKind
    number: int = 0


@dataclass(frozen=True, slots=True)
class PtxLaunch:
    """Launch of ``entry`` of ``text`` on a grid of thread blocks, with an 8-byte parameter for each of ``arguments``.

    Launches of one kernel run in order, and each sees the writes of those before it. shared_bytes: dynamic shared
    memory in addition to what the text declares. unless_same: the launch is skipped if these two are the same memory.
    """

    text: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[PtxArgument, ...]
    unless_same: tuple[PtxArgument, PtxArgument] | None = None
    workspace_bytes: int = 0


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Launch whose text is still LLVM IR: ``entry`` is its only external function."""

    ir: str
    entry: str
    blocks: int
    threads: int
    arguments: tuple[PtxArgument, ...]
    unless_same: tuple[PtxArgument, PtxArgument] | None = None
    workspace_bytes: int = 0

    def launch(self, text: str) -> PtxLaunch:
        return PtxLaunch(
            text,
            self.entry,
            (self.blocks, 1, 1),
            (self.threads, 1, 1),
            0,
            self.arguments,
            self.unless_same,
            self.workspace_bytes,
        )


def anchored(start: int, view: StridedView) -> tuple[int, StridedView]:
    """Return an aligned pointer at ``start`` or a little before it, and ``view`` relative to it.

    So one text serves all arrays of equal layout, and the layout tells how wide elements can be read.
    """
    before = start % ALIGNMENT
    return start - before, replace(view, offset=view.offset + before)


@dataclass(frozen=True, slots=True)
class PlacedLaunch:
    """Launch with addresses. pointers: its parameters in order; None is the workspace, which all kernels share.

    The workspace has at least ``launch.workspace_bytes`` and is aligned to ``ALIGNMENT``.
    """

    launch: PtxLaunch
    pointers: tuple[int | None, ...]


def placed(
    launches: tuple[PtxLaunch, ...], pointers: Mapping[ArgumentKind, Sequence[int]]
) -> tuple[PlacedLaunch, ...]:
    """Bind ``launches`` to the pointers ``pointers``, without those that ``unless_same`` skips."""

    def pointer(argument: PtxArgument) -> int | None:
        return (
            None
            if argument.kind is ArgumentKind.WORKSPACE
            else pointers[argument.kind][argument.number]
        )

    return tuple(
        PlacedLaunch(launch, tuple(map(pointer, launch.arguments)))
        for launch in launches
        if launch.unless_same is None or len(set(map(pointer, launch.unless_same))) > 1
    )
