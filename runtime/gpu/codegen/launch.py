"""Target GPU, kernel launches and their arguments, as plain data that needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum

from runtime.program.strides import StridedView
from spmd.lazy_dataclass import dataclass

#: Alignment in bytes of the pointers that are passed to kernels (see ``anchored``).
ALIGNMENT = 16
#: Number of threads of a warp.
WARP = 32
#: Largest number of threads that are resident on a multiprocessor.
RESIDENT_THREADS = 2048
#: Instruction that reads the number of a thread's block.
BLOCK_NUMBER = "call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()"


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """Target GPU. arch: PTX name of its compute capability, at least sm_80. multiprocessors: their number.

    shared_bytes: largest shared memory of a block.
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
    """Workspace of ``workspace_bytes`` that all kernels share. Its contents last for the launches of one kernel record.
    """


@dataclass(frozen=True, slots=True, order=True)
class KernelArgument:
    """Pointer argument of a launch: the address to which the view of array ``number`` is relative."""

    kind: ArgumentKind
    number: int = 0


@dataclass(frozen=True, slots=True)
class KernelSource:
    """LLVM IR of a kernel function, and its launch on ``blocks`` blocks of ``threads`` threads.

    A kernel record may need several launches, which run in order; each sees the writes of the earlier ones.

    entry: name of the kernel function. functions: LLVM IR of the functions that it calls, and of declarations. body:
    lines of IR, in which ``%p0``, ``%p1``, ... are the pointers ``arguments``, and ``BLOCK_NUMBER`` reads the number of
    the block. shared_bytes: size of the shared memory ``@shared`` of a block. unless_same: the launch is skipped if
    these two pointers are equal. workspace_bytes: workspace that the launch needs.
    """

    entry: str
    functions: tuple[str, ...]
    body: tuple[str, ...]
    shared_bytes: int
    blocks: int
    threads: int
    arguments: tuple[KernelArgument, ...]
    unless_same: tuple[KernelArgument, KernelArgument] | None = None
    workspace_bytes: int = 0

    @property
    def ir(self) -> str:
        """LLVM IR of a module whose only external function is ``entry``."""
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
    """Return the parameter list, in LLVM IR, of a kernel with ``count`` pointers."""
    return ", ".join(f"ptr align {ALIGNMENT} %p{n}" for n in range(count))


def anchored(start: int, view: StridedView) -> tuple[int, StridedView]:
    """Return the largest aligned address that is at most ``start``, and ``view`` relative to it.

    The offset of the returned view tells how many elements a vector load can read. Arrays of equal layout share the
    code of a kernel.
    """
    before = start % ALIGNMENT
    return start - before, replace(view, offset=view.offset + before)


@dataclass(frozen=True, slots=True)
class PlacedLaunch:
    """Launch with the addresses of its arguments.

    pointers: address of each argument, or None for the workspace, which all kernels share. The workspace must have at
    least ``launch.workspace_bytes`` and be aligned to ``ALIGNMENT``.
    """

    launch: KernelSource
    pointers: tuple[int | None, ...]


def placed(
    launches: tuple[KernelSource, ...], pointers: Mapping[ArgumentKind, Sequence[int]]
) -> tuple[PlacedLaunch, ...]:
    """Return ``launches`` with addresses, without the launches that ``unless_same`` skips.

    pointers: for each kind of argument, the addresses of its arrays.
    """

    def pointer(argument: KernelArgument) -> int | None:
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
