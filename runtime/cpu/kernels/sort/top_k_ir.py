"""Native code of the first few elements of a row by a key, of which the smallest comes first.

Elements are inserted into a sorted list if they are better than its last one, which most elements of a long row are
not. The elements of a block are tested one by one only if the block's best key, which is computed with vectors, is
better.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from runtime.codegen.elements.builder import Int
from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.sort.merge_sort_ir import rows, sort_function, write_results
from runtime.cpu.kernels.sort.radix_sort_ir import RadixVariant
from runtime.cpu.kernels.sort.sort_key import key_functions, key_of

FUNCTION = "spmd_top"
#: Number of elements of a block (Zen 5: 16 take 0.8 to 1.1 of the time, 256 1.0 to 1.2).
_BLOCK = 64


@cache
def top_code(variant: RadixVariant) -> NativeLibrary:
    """Return the library of ``FUNCTION``, which takes the address of a SortRecord.

    The scratch arrays of the record hold ``count`` keys, and as many 32-bit indices.
    """
    return host_jit().compile(top_ir(variant), (FUNCTION,), passes=Passes.TIDY)


def top_ir(variant: RadixVariant) -> str:
    """Return the IR of ``top_code``."""
    key = variant.key
    types = [stored_type(kind) for kind in variant.kinds]
    module = Module(*key_functions(key))
    _add_enter(module, f"i{key.bits}")
    f = sort_function(module, FUNCTION, len(types), variant.with_indices)
    rec = f.record
    size, count, keys, indices = rec.size, rec.count, rec.one, rec.other
    last = count - 1
    last_at = keys.element(f"i{key.bits}", last)
    with rows(f) as arrays:
        row = arrays[key.operand]

        def key_at(i: Int) -> Int:
            return key_of(f, key, row.at(i).load(types[key.operand]))

        with f.loop(count) as i:
            f.call("void", "enter", keys, indices, i, key_at(i), i)
        with f.repeat(count) as blocks:
            (begin,) = blocks.values
            blocks.leave(begin.compared("uge", size))
            full_end = begin + _BLOCK
            end = full_end.ult(size).select(full_end, size)
            best = _best(f, key.bits, begin, end, key_at)
            with f.when(best.ult(last_at.load(best.type))), f.loop(end, first=begin) as i:
                own = key_at(i)
                with f.when(own.ult(last_at.load(best.type))):
                    f.call("void", "enter", keys, indices, last, own, i)
            blocks.again(end)
        write_results(f, arrays, types, lambda o: indices.element("i32", o).load("i32"))
    return f.end()


def _best(f: FunctionWriter, bits: int, begin: Int, end: Int, key_at: Callable[[Int], Int]) -> Int:
    """Return the smallest key of the elements from ``begin`` to ``end``."""
    with f.repeat(begin, f.constant(-1, f"i{bits}")) as look:
        b, best = look.values
        better: Int = best.umin(key_at(b))
        following = b + 1
        look.again(following, better, when=following.ult(end))
    return better


def _add_enter(module: Module, kind: str) -> None:
    """Add ``enter``(keys, indices, size, key, index), which inserts in a sorted list of ``size`` entries.

    The key is inserted after equal keys, so that the order is stable. The list must have room for one entry more.
    """
    f = internal_function(module, "enter", "ptr", "ptr", "i64", kind, "i64")
    keys, indices, size, key, index = f.parameters
    with f.repeat(size) as look:
        (n,) = look.values
        look.leave(n.equals(0))
        before = n - 1
        other = keys.element(kind, before).load(kind)
        look.leave(key.compared("uge", other))
        other_index = indices.element("i32", before).load("i32")
        keys.element(kind, n).store(other)
        indices.element("i32", n).store(other_index)
        look.again(before)
    keys.element(kind, n).store(key)
    indices.element("i32", n).store(index.resized("i32"))
    f.finish()
