"""Description of a GPU, of kernel launches and of their memory: plain data that needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum

from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass

#: Alignment in bytes of the pointers that kernels get (see ``anchored``).
ALIGNMENT = 16
#: Threads of a warp, which exchange values without memory.
WARP = 32
#: Threads that a multiprocessor holds at once.
RESIDENT_THREADS = 2048
#: Instruction that reads the number of a thread's block.
BLOCK_NUMBER = "call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()"


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
    """Memory of ``workspace_bytes`` of a launch; it holds nothing before the kernel's first and after its last one."""


@dataclass(frozen=True, slots=True, order=True)
class PtxArgument:
    """Pointer to the byte from which the view of array ``number`` counts."""

    kind: ArgumentKind
    number: int = 0


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Launch of a kernel on ``blocks`` blocks of ``threads`` threads, with a pointer for each of ``arguments``.

    Launches of one kernel run in order, and each sees the writes of those before it.

    entry: the kernel's name. functions: declarations and functions that it calls, each a text of LLVM IR. body: its
    lines; ``%p0`` and so on are the pointers, and ``BLOCK_NUMBER`` reads the number of the thread's block.
    shared_bytes: size of the block's memory ``@shared``. unless_same: the launch is skipped if these two are the same
    memory.
    """

    entry: str
    functions: tuple[str, ...]
    body: tuple[str, ...]
    shared_bytes: int
    blocks: int
    threads: int
    arguments: tuple[PtxArgument, ...]
    unless_same: tuple[PtxArgument, PtxArgument] | None = None
    workspace_bytes: int = 0

    @property
    def ir(self) -> str:
        """The module's text; ``entry`` is its only external function."""
        shared = (
            f"@shared = internal addrspace(3) global [{self.shared_bytes} x i8] poison, align 16"
        )
        lines = [
            *self.functions,
            *([shared] if self.shared_bytes else []),
            f"define ptx_kernel void @{self.entry}({parameters(len(self.arguments))}) {{",
            *self.body,
            "  ret void\n}",
            "!nvvm.annotations = !{!0}",
            f'!0 = !{{ptr @{self.entry}, !"maxntidx", i32 {self.threads}}}',
        ]
        return "\n".join(lines)


def parameters(count: int) -> str:
    """Return the parameters of a kernel with ``count`` pointers."""
    return ", ".join(f"ptr align {ALIGNMENT} %p{n}" for n in range(count))


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

    launch: KernelSource
    pointers: tuple[int | None, ...]


def placed(
    launches: tuple[KernelSource, ...], pointers: Mapping[ArgumentKind, Sequence[int]]
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
