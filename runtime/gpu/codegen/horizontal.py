"""Horizontal fusion of launches: independent kernels become one kernel, in which each runs on some of the blocks.

    block 0 .. 31: the first kernel      block 32 .. 35: the second      ...

A launch begins about a microsecond after the launch that precedes it on the stream has ended. Small kernels take no
longer than that themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from runtime.gpu.codegen.launch import (
    BLOCK_NUMBER,
    KernelSource,
    parameters,
)

#: Largest number of kernels in one launch, and of its pointers, of which CUDA allows 512.
MOST_PARTS, MOST_ARGUMENTS = 16, 256
_DEFINED = re.compile(r"^define [^@]*@([\w.]+)", re.MULTILINE)


def is_mergeable(source: KernelSource) -> bool:
    """Return whether ``source`` can be part of a horizontal launch."""
    return source.unless_same is None and not source.workspace_bytes and bool(source.blocks)


def merged(parts: Sequence[KernelSource]) -> tuple[KernelSource, ...]:
    """Return as few launches as possible that run the independent, mergeable ``parts`` of one kernel record."""
    batches: list[list[KernelSource]] = []
    for part in parts:
        arguments = sum(len(x.arguments) for x in (part, *(batches[-1] if batches else ())))
        if not batches or len(batches[-1]) == MOST_PARTS or arguments > MOST_ARGUMENTS:
            batches.append([])
        batches[-1].append(part)
    return tuple(batch[0] if len(batch) == 1 else horizontal_source(batch) for batch in batches)


def horizontal_source(parts: Sequence[KernelSource]) -> KernelSource:
    """Return one launch that runs all ``parts``.

    The parts must be mergeable, and none may access bytes that another one writes. The pointers of the launch are the
    concatenated pointers of the parts. If a part has fewer threads per block than the launch, the other threads exit at
    once; GPUs of compute capability 7.0 and later do not wait for exited threads at barriers.
    """
    threads = max(part.threads for part in parts)
    functions: dict[str, None] = {}
    texts: dict[str, str] = {}
    body: list[str] = [f"  %number = {BLOCK_NUMBER}"]
    first = argument = 0
    for k, part in enumerate(parts):
        name = _name(k, part)
        function, needed = _as_function(part, name, texts)
        functions.update(dict.fromkeys((*needed, function)))
        body += _call(k, part, name, first, argument, threads, last=k == len(parts) - 1)
        first, argument = first + part.blocks, argument + len(part.arguments)
    found = KernelSource(
        "spmd_horizontal",
        tuple(functions),
        tuple(body),
        max(part.shared_bytes for part in parts),
        first,
        threads,
        tuple(argument for part in parts for argument in part.arguments),
    )
    digest = hashlib.sha256(found.ir.encode()).hexdigest()[:6]
    return replace(found, entry=f"spmd_horizontal_{len(parts)}_{digest}")


def _as_function(
    part: KernelSource, name: str, texts: dict[str, str]
) -> tuple[str, tuple[str, ...]]:
    """Return the IR of ``part`` as a function ``name`` of the block number and its pointers, and of what it calls.

    texts: name -> IR of the functions that earlier parts call; those of this part are added. If a function of this part
    has the name of a different function in ``texts``, it is renamed.
    """
    renamed: dict[str, str] = {}
    for text in part.functions:
        for defined in _DEFINED.findall(text):
            if texts.setdefault(defined, text) != text:
                renamed[defined] = f"{defined}.{name}"
    names = re.compile(r"@(" + "|".join(map(re.escape, renamed)) + r")(?![\w.])")

    def own(text: str) -> str:
        return names.sub(lambda found: f"@{renamed[found[1]]}", text) if renamed else text

    lines = [own(line.replace(BLOCK_NUMBER, "add i32 %block, 0")) for line in part.body]
    pointers = parameters(len(part.arguments))
    head = f"define internal void @{name}(i32 %block{pointers and ', '}{pointers}) alwaysinline {{"
    return "\n".join([head, *lines, "  ret void\n}"]), tuple(map(own, part.functions))


def _name(k: int, part: KernelSource) -> str:
    """Return the name of part ``k`` as a function. A part that is a horizontal launch has parts with other names."""
    return f"part{k}_{hashlib.sha256(part.ir.encode()).hexdigest()[:6]}"


def _call(
    k: int, part: KernelSource, name: str, first: int, argument: int, threads: int, *, last: bool
) -> list[str]:
    """Return the lines of IR that call part ``k``, the function ``name``, in its blocks.

    first: number of the part's first block. argument: number of its first pointer. threads: threads of a block.
    """
    pointers = [f"ptr %p{argument + n}" for n in range(len(part.arguments))]
    given = ", ".join([f"i32 %block{k}", *pointers])
    lines = [] if k == 0 else [f"after{k - 1}:"]
    if not last:
        lines += [
            f"  %is{k} = icmp ult i32 %number, {first + part.blocks}",
            f"  br i1 %is{k}, label %own{k}, label %after{k}",
            f"own{k}:",
        ]
    if part.threads < threads:
        lines += [
            f"  %thread{k} = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
            f"  %has{k} = icmp ult i32 %thread{k}, {part.threads}",
            f"  br i1 %has{k}, label %run{k}, label %end{k}",
            f"end{k}:",
            "  ret void",
            f"run{k}:",
        ]
    lines += [
        f"  %block{k} = sub i32 %number, {first}",
        f"  call void @{name}({given})",
    ]
    return lines if last else [*lines, "  ret void"]
