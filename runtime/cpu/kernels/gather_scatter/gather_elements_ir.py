"""Native code that takes single elements of an array at the places that indices name: vectors of them at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from runtime.codegen.elements.builder import Int
from runtime.codegen.ir.dynamic_starts import inside, widened_index
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.record import Address, Record, Word, record
from runtime.codegen.ir.values import Pointer
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from spmd.shape import PrimitiveType

FUNCTION = "spmd_take"
#: What an index may be at most: vectors of addresses are made of a base and signed numbers of 32 bits.
MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class TakeForm:
    """index: the indices' type. byte_size: an element's, 8 at most."""

    index: PrimitiveType
    byte_size: int


@record
class TakeRecord(Record):
    """near[k] = far[indices[k]], each index moved to between 0 and ``limit`` <= MOST. All three lie without gaps."""

    far: Address
    near: Address
    indices: Address
    count: Word
    limit: Word


@cache
def take_code(form: TakeForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a TakeRecord."""
    return host_jit().compile(take_ir(form), (FUNCTION,))


def take_ir(form: TakeForm) -> str:
    return _Take(form).text()


class _Take:
    """Writes the function."""

    def __init__(self, form: TakeForm) -> None:
        self.form = form
        self.f = FunctionWriter(FUNCTION, TakeRecord)
        self.element, self.index = f"i{8 * form.byte_size}", f"i{8 * form.index.byte_size}"

    def text(self) -> str:
        f, rec = self.f, self.f.record
        self.far, near, indices = rec.far, rec.near, rec.indices
        count, self.limit = rec.count, rec.limit
        self.take(indices, near, count)
        return f.end()

    def take(self, indices: Pointer, target: Pointer, count: Int) -> None:
        with self.f.vector_loop(count) as k:
            index = self.inside(indices.element(self.index, k).load(self.index))
            # The extension is one of signed numbers, so that addresses are a base and vectors of 32 bits.
            source = self.far.element(self.element, index.resized("i64", signed=True))
            target.element(self.element, k).store(source.load(self.element))

    def inside(self, index: Int) -> Int:
        """An index, moved to between 0 and the limit, as an i32."""
        kind = self.form.index
        if (kind.byte_size == 4 and kind.is_signed_integer) or kind.byte_size < 4:
            limit = self.limit.resized("i32")
            return inside(index.resized("i32", signed=kind.is_signed_integer), limit)
        return inside(widened_index(kind, index), self.limit).resized("i32")
