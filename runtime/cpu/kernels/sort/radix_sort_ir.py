"""Native code of a stable radix sort by an unsigned key, one byte at a time, the lowest byte first.

The histograms of all bytes are computed in one loop beforehand, and a byte that is equal in the entire row is skipped.
A single operand is sorted itself, through scratch into the result. Several operands are sorted as records of a key and
an index, and then gathered by index.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer, selected
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.cpu.kernels.sort.merge_sort_ir import Row, rows, sort_function, write_results
from runtime.cpu.kernels.sort.sort_key import SortKey, key_functions, key_of
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

FUNCTION = "spmd_radix_sort"


@dataclass(frozen=True, slots=True)
class RadixVariant:
    """Variant of the code for operands of types ``kinds``.

    A single operand without indices is moved itself; otherwise records of a key and an index are moved.
    """

    key: SortKey
    kinds: tuple[PrimitiveType, ...]
    with_indices: bool

    @property
    def moves_elements(self) -> bool:
        """Return whether elements are moved, and not records."""
        return len(self.kinds) == 1 and not self.with_indices

    @property
    def moved_bytes(self) -> int:
        """Return the size of a moved element, or of a record of a 32-bit index and the key above it, in bytes."""
        if self.moves_elements:
            return self.kinds[0].byte_size
        return 8 if self.key.bits <= 32 else 16

    @property
    def shift(self) -> int:
        """Return the number of bits of a record below the key."""
        return 32 if self.key.bits <= 32 else 64


@cache
def radix_sort_code(variant: RadixVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION``, which takes the address of a SortRecord.

    Each scratch array of the record has ``variant.moved_bytes`` per element of a row.
    """
    return host_jit().compile(radix_sort_ir(variant), (FUNCTION,))


def radix_sort_ir(variant: RadixVariant) -> str:
    """Return the IR of ``radix_sort_code``."""
    types = [stored_type(kind) for kind in variant.kinds]
    passes = _Passes(variant, Module(*key_functions(variant.key)))
    passes.add_move()
    passes.add_sort()
    f = sort_function(passes.module, FUNCTION, len(types), variant.with_indices)
    rec = f.record
    size, one, other = rec.size, rec.one, rec.other
    with rows(f) as arrays:
        if variant.moves_elements:
            (x, y) = arrays
            ends = (x.first, x.step, y.first, y.step)
            f.call("ptr", "sort", *ends, one, other, size)
        else:
            source = arrays[variant.key.operand]
            _write_records(f, variant, source, types[variant.key.operand], one)
            ends = (one, f.constant(variant.moved_bytes), f.null(), f.constant(0))
            order = f.call("ptr", "sort", *ends, one, other, size)
            write_results(
                f, arrays, types, lambda o: order.element(passes.moved, o).load("i32", align=8)
            )
    return f.end()


def _write_records(
    f: FunctionWriter, variant: RadixVariant, source: Row, kind: str, records: Pointer
) -> None:
    """Write a record for each element of a row, with the key above the index in the low 32 bits."""
    moved = f"i{8 * variant.moved_bytes}"
    with f.loop(f.record.size) as i:
        key = key_of(f, variant.key, source.at(i).load(kind))
        both = (key.resized("i128") << variant.shift) | i.resized("i128")
        records.element(moved, i).store(both.resized(moved), align=8)


class _Passes:
    """Writer of the functions that move elements or records, of LLVM type ``moved``."""

    def __init__(self, variant: RadixVariant, module: Module) -> None:
        self.variant, self.module = variant, module
        self.moved = f"i{8 * variant.moved_bytes}"
        if variant.moves_elements:
            self.moved = stored_type(variant.kinds[0])
        self.align = min(variant.moved_bytes, 8)
        self.bytes = variant.key.bits // 8

    def key_bits(self, f: FunctionWriter, moved: Value) -> Int:
        """Return the key of an element or record as an i64."""
        if self.variant.moves_elements:
            return key_of(f, self.variant.key, moved).resized("i64")
        assert isinstance(moved, Int)
        return (moved >> self.variant.shift).resized("i64")

    def add_move(self) -> None:
        """Add ``move``(x, step, to, step, n, shift, counts), one pass by the byte at bit ``shift`` of the key.

        ``counts`` has the histogram of that byte, which becomes the next position of each value.
        """
        f = internal_function(self.module, "move", "ptr", "i64", "ptr", "i64", "i64", "i64", "ptr")
        x, x_step, to, to_step, n, shift, counts = f.parameters
        with f.repeat(0, f.constant(0, "i32")) as bucket:
            value, start = bucket.values
            counter = counts.element("i32", value)
            count = counter.load("i32")
            counter.store(start)
            following = value + 1
            bucket.again(following, start + count, when=following.ult(256))
        with f.loop(n) as i:
            element = x.at(i * x_step).load(self.moved, align=self.align)
            digit = (self.key_bits(f, element) >> shift) & 255
            counter = counts.element("i32", digit)
            at = counter.load("i32")
            counter.store(at + 1)
            to.at(at.resized("i64") * to_step).store(element, align=self.align)
        f.finish()

    def add_sort(self) -> None:
        """Add ``sort``(x, x_step, y, y_step, one, other, n), which sorts n elements or records and returns where.

        Elements are moved from x to y, and records from x to one of the two scratch arrays.
        """
        kinds = ("ptr", "i64", "ptr", "i64", "ptr", "ptr", "i64")
        f = internal_function(self.module, "sort", *kinds, result="ptr")
        x, x_step, y, y_step, one, other, n = f.parameters
        counts, active = f.array(self.bytes, "[256 x i32]"), f.array(self.bytes, "i64")
        all_passes = self.count(f, counts, active)
        own = f.constant(self.variant.moved_bytes)
        with f.repeat(0, x, x_step, all_passes) as passes:
            p, source, step, left = passes.values
            is_active = active.element("i64", p).word()
            with f.when(is_active.differs(0)) as moving:
                # A pass writes to the scratch that it does not read; the last pass over elements writes to the result.
                to, to_step = selected(source.equals(one), other, one), own
                if self.variant.moves_elements:
                    last = left.equals(1)
                    to, to_step = selected(last, y, to), last.select(y_step, own)
                table = counts.element("[256 x i32]", p)
                f.call("void", "move", source, step, to, to_step, n, p * 8, table)
            now, now_step = moving.merged(to, source), moving.merged(to_step, step)
            following = p + 1
            more = following.ult(self.bytes)
            passes.again(following, now, now_step, left - is_active, when=more)
        f.ret(now)
        f.finish()

    def count(self, f: FunctionWriter, counts: Pointer, active: Pointer) -> Int:
        """Write the histogram of each byte, and mark the bytes that differ in ``active``. Returns the number of passes.

        If all keys are equal there is one pass, so that elements reach the result.
        """
        x, x_step, n = f.parameters[0], f.parameters[1], f.parameters[6]
        f.memset(counts, self.bytes * 1024)
        with f.loop(n) as i:
            key = self.key_bits(f, x.at(i * x_step).load(self.moved, align=self.align))
            for b in range(self.bytes):
                counter = counts.element("[256 x i32]", b).element("i32", (key >> (8 * b)) & 255)
                counter.store(counter.load("i32") + 1)
        with f.repeat(0, 0) as look:
            k, passes = look.values
            digit = (key >> (k * 8)) & 255
            same = counts.element("[256 x i32]", k).element("i32", digit).load("i32")
            differ = same.resized("i64").differs(n).resized("i64")
            active.element("i64", k).store(differ)
            more_passes = passes + differ
            following = k + 1
            look.again(following, more_passes, when=following.ult(self.bytes))
        first = active.word()
        active.store(more_passes.equals(0).select(f.constant(1), first))
        most: Int = more_passes.umax(1)
        return most
