"""A function with the signature of cblas_sgemm that computes on the tile unit, about three times as fast.

Its errors are about those of cblas_sgemm. BLAS computes small products, products in column-major order or with other
factors, blocks with numbers beyond the unit's range, and all products if it may use so many threads that it is faster.
"""

from __future__ import annotations

from runtime.codegen.elements.builder import Bool, Float
from runtime.codegen.elements.formats import F32
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.gemm.tile_block_ir import (
    SCALE,
    UNSCALE,
    TileRecord,
    call_product,
    instead_function,
    product_module,
)
from runtime.cpu.kernels.gemm.tile_types import TileTypes
from runtime.cpu.libraries.blas import NO_TRANSPOSE, ROW_MAJOR, TRANSPOSE, gemm_parameters
from runtime.program.argument_record import word_count
from spmd.shape import PrimitiveType

FUNCTION = "spmd_tile_sgemm"


def tile_gemm_code(
    blas: int,
    index_bits: int,
    threads: int | None,
    thresholds: tuning.TileThresholds = tuning.TILE_THRESHOLDS,
) -> NativeLibrary:
    """Return the library of ``FUNCTION``, which has the signature of cblas_sgemm.

    ``blas`` is the address of cblas_sgemm, ``index_bits`` the width of its sizes in bits, and ``threads`` the address
    of the function that returns BLAS's number of threads. If that is None, the number does not matter.
    """
    types = TileTypes(PrimitiveType.F32, PrimitiveType.F32, PrimitiveType.F32)
    index = f"i{index_bits}"
    parameters = gemm_parameters(index, "float")
    module = product_module(types, instead=True)
    module.declare(f"declare void @blas({', '.join(parameters)})")
    _add_block_by_blas(module, index)
    f = FunctionWriter(FUNCTION, module=module, parameters=parameters)
    with f.when(_is_faster(f, thresholds)):
        if threads is None:
            _write_product(f)
        else:
            f.declare("declare i32 @blas_threads()")
            with f.when(f.call("i32", "blas_threads") <= tuning.TILE_MOST_BLAS_THREADS):
                _write_product(f)
    f.call("void", "blas", *f.parameters)
    symbols = {"blas": blas} | ({"blas_threads": threads} if threads is not None else {})
    return host_jit().compile(f.end(), (FUNCTION,), symbols, passes=Passes.TIDY)


def _is_faster(f: FunctionWriter, thresholds: tuning.TileThresholds) -> Bool:
    """Return whether the unit supports the product's layout and factors, and the product is large enough."""
    order, _, _, *sizes, alpha, _, _, _, _, beta, _, _ = f.parameters
    known_factors = alpha.equals(1.0) & (beta.equals(0.0) | beta.equals(1.0))
    m, n, k = (size.resized("i64", signed=True) for size in sizes)
    enough_lines = (m >= thresholds.lines) & (n >= thresholds.lines)
    enough_each = enough_lines & (k >= thresholds.depth)
    enough = enough_each & (m * n * k >= thresholds.products)
    is_faster: Bool = (order.equals(ROW_MAJOR) & known_factors) & enough
    return is_faster


def _write_product(f: FunctionWriter) -> None:
    """Write the product on the unit, and the return from the function."""
    _, *flags, m, n, k, _, lhs, lda, rhs, ldb, beta, result, ldc = f.parameters
    lhs_lies, rhs_lies = (flag.equals(NO_TRANSPOSE) for flag in flags)
    item = f.constant(4)
    sizes = [size.resized("i64", signed=True) for size in (m, n, k)]
    lhs_row, rhs_row, out_row = (x.resized("i64", signed=True) << 2 for x in (lda, ldb, ldc))
    strides = [lhs_lies.select(lhs_row, item), lhs_lies.select(item, lhs_row)]
    strides += [rhs_lies.select(item, rhs_row), rhs_lies.select(rhs_row, item)]
    record = f.array(word_count(TileRecord), "i64")
    adds = beta.equals(1.0).resized("i64")
    for n, value in enumerate((lhs, rhs, result, *sizes, *strides, out_row, adds)):
        record.element("i64", n).store(value)
    call_product(f, record, SCALE, UNSCALE, checked=True)
    f.ret()


def _add_block_by_blas(module: Module, index: str) -> None:
    """Add the function ``instead`` of ``product``, which calls BLAS. ``index`` is the type of BLAS's integers."""
    f = instead_function(module)
    rec, (_, i, j, d, rows, columns, depth, add) = f.record, f.parameters
    lhs = rec.lhs.at(i * rec.lhs_line + d * rec.lhs_depth)
    rhs = rec.rhs.at(j * rec.rhs_line + d * rec.rhs_depth)
    out = rec.out.at(i * rec.out_row).element("float", j)
    lhs_lies, rhs_lies = rec.lhs_depth.equals(4), rec.rhs_line.equals(4)
    steps = (
        lhs_lies.select(rec.lhs_line, rec.lhs_depth),
        rhs_lies.select(rec.rhs_depth, rec.rhs_line),
        rec.out_row,
    )
    leading = [(step >> 2).resized(index) for step in steps]
    order, transpose = f.constant(ROW_MAJOR, "i32"), f.constant(TRANSPOSE, "i32")
    flags = [
        lies.select(f.constant(NO_TRANSPOSE, "i32"), transpose) for lies in (lhs_lies, rhs_lies)
    ]
    sizes = [size.resized(index) for size in (rows, columns, depth)]
    one = Float(f, F32, "1.0")
    operands = (one, lhs, leading[0], rhs, leading[1], add.choose(one, 0.0), out, leading[2])
    f.call("void", "blas", order, *flags, *sizes, *operands)
    f.finish()
