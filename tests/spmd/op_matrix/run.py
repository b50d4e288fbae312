"""Run one instruction on vectors of scalars through text, reader, verifier and evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spmd.evaluator import evaluate
from spmd.hlo import HloModule
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module
from spmd.verifier import verify
from tests.spmd.op_matrix.judge import scalars

NDArray = np.ndarray[Any, np.dtype[Any]]


def array(kind: str, values: Sequence[Any], dims: Sequence[int] | None = None) -> NDArray:
    """Elements of an HLO type from Python scalars that it holds exactly."""
    plain = np.array(list(values), _carrier(kind))
    return plain.astype(PrimitiveType(kind).numpy).reshape(dims if dims is not None else (-1,))


def _carrier(kind: str) -> Any:
    if kind == "pred":
        return np.bool_
    if kind[0] in "su":
        return np.int64 if kind[0] == "s" else np.uint64
    return np.complex128 if kind[0] == "c" else np.float64


def program(body: str, before: str = "") -> str:
    return f"HloModule m\n{before}\nENTRY e {{\n{body}\n}}"


def read(body: str, before: str = "", devices: int = 1) -> HloModule:
    """The verified module whose entry has these instructions."""
    text = program(body, before)
    module = parse_module(text.replace("HloModule m", f"HloModule m, num_partitions={devices}", 1))
    verify(module)
    return module


def run(body: str, *arrays: NDArray, before: str = "") -> list[NDArray]:
    """Outputs of the entry with these instructions; verified first."""
    return evaluate(read(body, before), *arrays)


def elementwise(
    opcode: str, operands: Sequence[tuple[str, Sequence[Any]]], result: str, attributes: str = ""
) -> list[Any]:
    """Elements of opcode(operands), each operand (element type, scalars of one length)."""
    n = len(operands[0][1])
    lines = [f"p{i} = {kind}[{n}] parameter({i})" for i, (kind, _) in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    lines.append(f"ROOT r = {result}[{n}] {opcode}({names}){attributes}")
    (out,) = run("\n".join(lines), *(array(kind, values) for kind, values in operands))
    return scalars(out)
