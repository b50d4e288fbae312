"""What a GPU is, what it is asked to run, and on which memory: plain data, known before there is any GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from runtime.program.strides import StridedView

#: Bytes: pointers that kernels are given are multiples of it (see ``anchored``).
ALIGNMENT = 16
#: Threads of a warp, which exchange values without memory.
WARP = 32


@dataclass(frozen=True, slots=True)
class PtxTarget:
    """arch: PTX's name of a compute capability, 8.0 at least. multiprocessors: how many blocks run side by side.

    shared_bytes: of a block's shared memory.
    """

    arch: str = "sm_90"
    multiprocessors: int = 132
    shared_bytes: int = 48 << 10


class Held(Enum):
    """Whose memory an argument is."""

    OPERAND = "operand"
    RESULT = "result"
    SCRATCH = "scratch"
    WORKSPACE = "workspace"
    """Of ``PtxLaunch.workspace_bytes``, which hold nothing before the kernel's first launch and after its last."""


@dataclass(frozen=True, slots=True, order=True)
class PtxArgument:
    """A pointer to the byte that the view of array ``number`` counts from."""

    held: Held
    number: int = 0


@dataclass(frozen=True, slots=True)
class PtxLaunch:
    """``entry`` of ``text`` on a grid of blocks of threads; a parameter of 8 bytes for each of ``arguments``.

    Launches of one kernel follow on one another, each sees what those before it have written. shared_bytes: to be asked
    for besides what the text declares. unless_same: it is left out where these two are the same memory.
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
    """A launch whose text is still LLVM IR: ``entry`` is its only function that can be seen."""

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
    """A pointer that kernels take, at ``start`` or a little before, and what ``view`` is from there.

    So one text serves all arrays that lie alike, and tells by itself how wide their elements can be read.
    """
    before = start % ALIGNMENT
    return start - before, replace(view, offset=view.offset + before)


@dataclass(frozen=True, slots=True)
class PlacedLaunch:
    """A launch on addresses. pointers: what its parameters are, in order; None is the workspace's, of all kernels one.

    That has ``launch.workspace_bytes`` at least and begins at a multiple of ``ALIGNMENT``.
    """

    launch: PtxLaunch
    pointers: tuple[int | None, ...]


def placed(
    launches: tuple[PtxLaunch, ...], places: Mapping[Held, Sequence[int]]
) -> tuple[PlacedLaunch, ...]:
    """``launches`` on arrays whose pointers are ``places``, without those that these make needless."""

    def pointer(argument: PtxArgument) -> int | None:
        return None if argument.held is Held.WORKSPACE else places[argument.held][argument.number]

    return tuple(
        PlacedLaunch(launch, tuple(map(pointer, launch.arguments)))
        for launch in launches
        if launch.unless_same is None or len(set(map(pointer, launch.unless_same))) > 1
    )
