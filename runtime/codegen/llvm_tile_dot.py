"""Native code of products of bf16 and 8-bit matrices on the tile unit, as they lie: no operand is converted before."""

from __future__ import annotations

from functools import cache

from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_tile_product import ONE, SCALE, UNSCALE, product_ir
from runtime.codegen.llvm_tiles import TileForm

FUNCTION = "spmd_tile_dot"


@cache
def tile_dot_code(form: TileForm) -> NativeLibrary:
    """``FUNCTION``: takes the address of packed TileWords, of a depth that one block holds where results are narrow.

    bf16 numbers beyond the scaled range are multiplied again as they are: then only what is denormal gets lost.
    """
    call = (_SCALED if form.is_float else _PLAIN).format(one=ONE, scale=SCALE, unscale=UNSCALE)
    ir = f"{product_ir(form, instead=False)}\ndefine void @{FUNCTION}(ptr %record) {{{call}}}\n"
    return host_jit().compile(ir, (FUNCTION,), level=2, unroll=False)


_PLAIN = """
  %done = call i1 @product(ptr %record, float {one}, float {one}, i1 false)
  ret void
"""

_SCALED = """
  %done = call i1 @product(ptr %record, float {scale}, float {unscale}, i1 true)
  br i1 %done, label %end, label %again
again:
  %done_again = call i1 @product(ptr %record, float {one}, float {one}, i1 false)
  br label %end
end:
  ret void
"""
