"""Machine instructions of single kernels beside XLA:GPU's, and the share of the copy bandwidth that they allow.

    python -m benchmarks.gpu.instructions --corpus DIR [--only RE]

No GPU is needed, but ptxas and nvdisasm (wheels nvidia-cuda-nvcc and nvidia-cuda-nvdisasm). Each program
NAME/module.hlo of DIR that is in ``KERNELS`` is planned for an H200, and its kernels are assembled for sm_90a. Printed
are registers, spilled bytes, the instructions of the hot path for each element (``sass.py``), and the predicted share:
the time of the bytes at the bandwidth of copies, divided by that time or the time of the instructions, whichever is
longer. The exit
status is 1 if a bar is missed: no spills, at most 1.1 times XLA's instructions where they are known, and a predicted
share of at least 0.85.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.sass import HotPath, disassembled, disassembler, hot_path
from benchmarks.gpu.static import planned, touched_bytes
from runtime.gpu.codegen.launch import WARP, KernelSource
from runtime.gpu.codegen.ptx_module import ptx_text
from runtime.gpu.commands.kernel import GeneratedKernelCommand
from runtime.program.records.gather_scatter import ScatterKernel
from tests.runtime.gpu.codegen.assembler import assembler

#: Architecture for which PTX is made, and assembled.
ARCH = "sm_90a"
#: Bytes per second that a copy on an H200 moves, and instructions per second that all its warps issue
#: (benchmarks/results/gpu_h200: 4.28e12 measured; 132 multiprocessors issue 4 instructions per cycle at 1.6 GHz).
COPY_BANDWIDTH, ISSUE_RATE = 4.3e12, 0.84e12
#: Largest ratio of our instructions to XLA's, and least share of the copy bandwidth.
MOST_INSTRUCTIONS, LEAST_SHARE = 1.1, 0.85
#: Kernel -> SASS instructions per element of XLA:GPU's kernel, if known. They were counted in the PTX that JAX 0.10.2
#: makes of the same programs for an H200, through ptxas and nvdisasm 13.5.
KERNELS: dict[str, float | None] = {
    "adam": 32,
    "layernorm": 21,
    "softmax": 19,
    "softmax_bf16": 24,
    "biasgelu": 38,
    "transpose": None,
    "transpose_bf16": None,
    "colsum": None,
    "embed": None,
    "scatter": None,
}


@dataclass(frozen=True)
class Launch:
    """Figures of one launch. elements: how many its hot path is repeated for. item: bytes that it moves for each."""

    name: str
    registers: int
    spilled: int
    path: HotPath
    elements: int
    item: int
    loads: bool

    @property
    def per_element(self) -> float:
        """Instructions of a thread for one element."""
        moved = self.path.loaded if self.loads else self.path.stored
        return len(self.path.instructions) * self.item / moved

    @property
    def seconds(self) -> float:
        """Time to issue the instructions for all elements."""
        return self.elements * self.per_element / WARP / ISSUE_RATE


def launches(commands: Sequence[object], ptxas: str, nvdisasm: str) -> Iterator[Launch]:
    """Yield the figures of all launches of generated kernels, except those that only combine totals."""
    for command in commands:
        if not isinstance(command, GeneratedKernelCommand):
            continue
        for source in command.launches:
            if source.entry.startswith("spmd_row_totals"):
                continue
            yield _launch(command, source, ptxas, nvdisasm)


def _launch(
    command: GeneratedKernelCommand, source: KernelSource, ptxas: str, nvdisasm: str
) -> Launch:
    sass, said = disassembled(ptx_text(source.ir, ARCH), ARCH, ptxas, nvdisasm)
    registers = re.search(r"Used (\d+) registers", said)
    spills = re.findall(r"(\d+) bytes spill", said)
    assert registers is not None
    counted, loads = [x.view for x in command.results], False
    if isinstance(command.kernel, ScatterKernel) and source.entry.startswith("spmd_scatter"):
        counted = [command.operands[command.kernel.updates].view]
    elif counted[0].num_elements < command.operands[0].view.num_elements / WARP:
        counted, loads = [command.operands[0].view], True  # a reduction
    item = sum(view.element_type.byte_size for view in counted)
    return Launch(
        source.entry,
        int(registers[1]),
        sum(map(int, spills)),
        hot_path(sass, source.entry),
        counted[0].num_elements,
        item,
        loads,
    )


def predicted_share(found: Sequence[Launch], size: int) -> float:
    """Return the predicted share of the copy bandwidth of launches that move ``size`` bytes in all."""
    moving = size / COPY_BANDWIDTH
    return moving / max(moving, sum(launch.seconds for launch in found))


def missed(name: str, found: Sequence[Launch], share: float) -> Iterator[str]:
    """Yield the bars that kernel ``name`` misses."""
    spilled = sum(launch.spilled for launch in found)
    if spilled:
        yield f"{name}: {spilled} bytes are spilled"
    peer = KERNELS[name]
    own = sum(launch.per_element for launch in found)
    if peer is not None and own > MOST_INSTRUCTIONS * peer:
        yield f"{name}: {own:.1f} instructions per element, XLA {peer:g}: {own / peer:.2f} of them"
    if share < LEAST_SHARE:
        yield f"{name}: predicted share of the copy bandwidth {share:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpus", type=Path, required=True, help="folder of NAME/module.hlo")
    parser.add_argument("--only", default="", help="kernels whose name matches this expression")
    options = parser.parse_args()
    tools = assembler(), disassembler()
    if tools[0] is None or tools[1] is None:
        parser.error("needs ptxas and nvdisasm: pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm")
    lines = list[str]()
    print(
        f"{'kernel':16s}{'registers':>12s}{'spills':>8s}{'SASS/element':>16s}{'XLA':>6s}{'share':>7s}"
    )
    for name, peer in KERNELS.items():
        folder = options.corpus / name
        if not (folder / "module.hlo").exists() or not re.search(options.only, name):
            continue
        _, commands = planned(folder, 1)
        found = list(launches(commands, tools[0], tools[1]))
        size = sum(touched_bytes(x) for x in commands if isinstance(x, GeneratedKernelCommand))
        share = predicted_share(found, size)
        registers = ", ".join(str(launch.registers) for launch in found)
        counts = " + ".join(f"{launch.per_element:.1f}" for launch in found)
        spilled = sum(launch.spilled for launch in found)
        known = "-" if peer is None else f"{peer:g}"
        print(
            f"{name:16s}{registers:>12s}{spilled:8d}{counts:>16s}{known:>6s}{share:7.2f}",
            flush=True,
        )
        lines += missed(name, found, share)
    for line in lines:
        print(f"MISSED {line}")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
