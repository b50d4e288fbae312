"""Hot path of a kernel in SASS, the machine code that ptxas makes of PTX: its instructions and its memory accesses.

nvdisasm (wheels nvidia-cuda-nvdisasm and triton) prints a cubin. The hot path takes each loop once and makes no call:
calls are the slow paths of divisions and roots. Of all such paths it is the one that moves most bytes; of those the one
with the fewest divisions that have a slow path (FCHK); and of those the longest. If at least half of its global memory
accesses are in one loop, the hot path is one round of that loop.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.runtime.gpu.codegen.assembler import cuda_tool

_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_LABEL = re.compile(r"^(\S+):\s*$")
_TARGET = re.compile(r"`\((\S+)\)")
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1}


@dataclass(frozen=True)
class Instruction:
    """Instruction at byte ``address``. predicate: condition under which it runs, empty if it always does."""

    address: int
    predicate: str
    opcode: str
    operands: str
    label: str = ""

    @property
    def name(self) -> str:
        """First part of the opcode, such as LDG."""
        return self.opcode.split(".")[0]

    @property
    def loaded(self) -> int:
        """Bytes that a thread loads from global memory."""
        return self._width if self.name in ("LD", "LDG") else 0

    @property
    def stored(self) -> int:
        """Bytes that a thread stores to global memory, also by atomic operations."""
        return self._width if self.name in ("ST", "STG", "RED", "REDG", "ATOM", "ATOMG") else 0

    @property
    def _width(self) -> int:
        found = (_WIDTHS[part] for part in self.opcode.split(".") if part in _WIDTHS)
        return next(found, 4)


@dataclass(frozen=True)
class HotPath:
    """Instructions of a hot path in the order in which a thread runs them."""

    instructions: tuple[Instruction, ...]

    @cached_property
    def loaded(self) -> int:
        """Bytes that a thread loads from global memory."""
        return sum(x.loaded for x in self.instructions)

    @cached_property
    def stored(self) -> int:
        """Bytes that a thread stores to global memory."""
        return sum(x.stored for x in self.instructions)


def disassembler() -> str | None:
    """Return the path of nvdisasm, or None."""
    return cuda_tool("nvdisasm")


def disassembled(ptx: str, arch: str, ptxas: str, nvdisasm: str) -> tuple[str, str]:
    """Assemble ``ptx`` for ``arch``, such as sm_90a, and return the SASS, and what ptxas says of registers and spills.

    ptxas, nvdisasm: paths of the tools. Raises CalledProcessError if one of them refuses its input.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        assemble = [ptxas, "-v", f"-arch={arch}", str(source), "-o", str(cubin)]
        said = subprocess.run(assemble, check=True, capture_output=True, text=True)
        sass = subprocess.run(
            [nvdisasm, "-c", str(cubin)], check=True, capture_output=True, text=True
        )
        return sass.stdout, said.stderr


def hot_path(sass: str, entry: str) -> HotPath:
    """Return the hot path of the kernel ``entry`` in the text ``sass`` of nvdisasm."""
    code = list(_instructions(sass, entry))
    whole = _longest(code)
    best, least = whole, (whole.loaded + whole.stored) / 2
    for body in _loops(code):
        path = _longest(body)
        if path.loaded + path.stored >= least:  # loops come before those inside of them
            best = path
    return best


def _instructions(sass: str, entry: str) -> Iterator[Instruction]:
    """Yield the instructions of ``entry``, without those of the functions that it calls."""
    inside, label = False, ""
    for line in sass.splitlines():
        named = _LABEL.match(line)
        if named:
            if named[1] in (entry, f".text.{entry}"):
                inside = True
            elif not named[1].startswith(".L"):
                inside = False
            label = named[1]
        found = _INSTRUCTION.search(line)
        if found and inside:
            address, predicate, opcode, operands = found.groups()
            yield Instruction(int(address, 16), predicate or "", opcode, operands, label)
            label = ""


def _targets(code: Sequence[Instruction]) -> dict[str, int]:
    """Return the index in ``code`` of each label."""
    return {x.label: n for n, x in enumerate(code) if x.label}


def _jump(x: Instruction, targets: dict[str, int]) -> int | None:
    """Return the index to which ``x`` branches, or None if it is no branch or leaves the code."""
    label = _TARGET.search(x.operands)
    return targets.get(label[1]) if x.name == "BRA" and label else None


def _loops(code: Sequence[Instruction]) -> list[list[Instruction]]:
    """Return the instructions of each loop: from the target of a backward branch to the branch, longest first."""
    targets = _targets(code)
    found = []
    for n, x in enumerate(code):
        first = _jump(x, targets)
        if first is not None and first < n:
            found.append(list(code[first : n + 1]))
    return sorted(found, key=len, reverse=True)


def _longest(code: Sequence[Instruction]) -> HotPath:
    """Return the hot path from the first of ``code`` to an end, as if there were no loops."""
    targets, size = _targets(code), len(code)
    most = [(0, 0, 0)] * (size + 1)  # bytes, divisions as a negative number, instructions
    after: list[int] = [size] * (size + 1)
    for n in reversed(range(size)):
        x = code[n]
        following = [] if x.name in ("EXIT", "RET") and not x.predicate else [n + 1]
        if x.name == "BRA":
            jump = _jump(x, targets)
            following = following if x.predicate else []
            if jump is None or jump <= n:
                following.append(size)
            else:
                following.append(jump)
        if x.name == "CALL":
            most[n] = -1, 0, 0
            continue
        after[n] = max(following, key=most.__getitem__, default=size)
        moved, divisions, length = most[after[n]]
        if moved >= 0:
            moved += x.loaded + x.stored
        most[n] = moved, divisions - (x.name == "FCHK"), length + 1
    path, n = [], 0
    while n < size:
        path.append(code[n])
        n = after[n]
    return HotPath(tuple(path))
