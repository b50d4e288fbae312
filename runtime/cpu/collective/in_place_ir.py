"""LLVM IR of the actions of collectives that work in place: the exchange of rows of two buffers, and in-place permutes.

A permute moves bytes along a chain or a cycle of addresses. Each block passes through registers: the block at the next
address is read before it is overwritten, so no memory is needed for staging.
"""

from __future__ import annotations

from collectives.communicator.actions.engine import RunStatus
from runtime.codegen.elements.builder import Int, IntLike, Value
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.collective.action_records import RotateRecord, SwapRowsRecord
from runtime.cpu.collective.shared_memory_ir import action_function


def in_place_ir() -> str:
    """Return a module with the functions IN_PLACE_FUNCTIONS."""
    module = Module()
    _add_swap(module)
    _add_rotate(module)
    return module.text()


def _add_rotate(module: Module) -> None:
    f = action_function(module, "spmd_rotate_bytes", RotateRecord)
    size = f.record.num_bytes
    blocks_end, int64_end = size & -256, size & -8
    _rotate(f, "<256 x i8>", 256, f.constant(0), blocks_end)
    _rotate(f, "i64", 8, blocks_end, int64_end)
    _rotate(f, "i8", 1, int64_end, size)
    f.ret(RunStatus.COMPLETE)
    f.finish()


def _rotate(f: FunctionWriter, kind: str, step: int, begin: Int, end: Int) -> None:
    """Move the bytes from offset ``begin`` to ``end`` in units of type ``kind``, which has ``step`` bytes."""
    addresses, count, is_cycle = f.record.addresses, f.record.count, f.record.is_cycle
    with f.loop(end, first=begin, step=step, nonempty=False) as offset:
        with f.when(is_cycle.differs(0)) as cycle:
            wrapped = addresses.pointer(count - 1).at(offset).load(kind, align=1)
        first = cycle.merged(wrapped, Value(f, kind, "0" if kind[0] == "i" else "zeroinitializer"))
        with f.repeat(0, first) as along:
            i, carry = along.values
            at = addresses.pointer(i).at(offset)
            displaced = at.load(kind, align=1)
            at.store(carry, align=1)
            following = i + 1
            along.again(following, displaced, when=following.ult(count))


def _add_swap(module: Module) -> None:
    """Add the exchange of rows: in blocks of 64 bytes, the remainder of a row in blocks of 8, then byte by byte."""
    f = action_function(module, "spmd_swap_rows", SwapRowsRecord)
    rec = f.record
    one, other, stride, size = rec.one, rec.other, rec.stride, rec.row_bytes
    blocks_end, int64_end = size & -64, size & -8
    with f.loop(rec.rows) as r:
        rows = one.at(r * stride), other.at(r * stride)
        _swap(f, rows, "<64 x i8>", 64, 0, blocks_end)
        _swap(f, rows, "i64", 8, blocks_end, int64_end)
        _swap(f, rows, "i8", 1, int64_end, size)
    f.ret(RunStatus.COMPLETE)
    f.finish()


def _swap(
    f: FunctionWriter,
    rows: tuple[Pointer, Pointer],
    kind: str,
    step: int,
    begin: IntLike,
    end: Int,
) -> None:
    with f.loop(end, first=begin, step=step, nonempty=False) as offset:
        one, other = (row.at(offset) for row in rows)
        here, there = one.load(kind, align=1), other.load(kind, align=1)
        one.store(there, align=1)
        other.store(here, align=1)
