"""Native code of small products: sums stay in registers, and matrices are not packed.

For each step of the depth, V vectors of the row-major rhs are loaded, and each of R elements of lhs is multiplied with
all of them. The last blocks of R rows and V vectors end with the matrix, so they overlap the blocks before and compute
some results twice. Both values are equal, since a sum does not depend on its block. If a block has more columns than
the matrix, its last vector is partial.

    R = 2, V = 2      rhs[d]    ···[ v0 ][ v1 ]···
    lhs[i, d]                      + s00  + s01        s00 += lhs[i, d] * v0
    lhs[i + 1, d]                  + s10  + s11
"""

from __future__ import annotations

from runtime.codegen.elements.storage import wide_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.values import splat, zeros
from runtime.codegen.ir.vectors import first_lanes, masked_load, masked_store
from runtime.cpu.kernels.gemm.native_dot import GEMM, GemmRecord, RegisterBlock
from runtime.cpu.libraries.blas import NO_TRANSPOSE
from spmd.shape import PrimitiveType


def small_gemm_ir(kind: PrimitiveType, block: RegisterBlock) -> str:
    """Return the IR of ``GEMM`` for f32 or f64 by register blocks of the size ``block``.

    rhs must be row-major; lhs may be transposed. The result must have at least ``block.rows`` rows.
    """
    f, t, size = FunctionWriter(GEMM, GemmRecord), wide_type(kind), kind.byte_size
    rec, vector = f.record, f"<{block.lanes} x {t}>"
    rows, vectors = range(block.rows), range(block.vectors)
    lda, ldb, ldc = (leading * size for leading in (rec.lda, rec.ldb, rec.ldc))
    is_by_row = rec.transpose_lhs.equals(NO_TRANSPOSE)
    lhs_row, lhs_step = is_by_row.select(lda, size), is_by_row.select(f.constant(size), lda)
    last_i, last_j = rec.m - block.rows, (rec.n - block.columns).smax(0)
    partial = block.vectors - 1 if block.is_wider else None
    mask = first_lanes(rec.n - (block.columns - block.lanes), block.lanes)
    nothing = [zeros(f, vector)] * (block.rows * block.vectors)
    with f.loop(rec.n, step=block.columns) as j:
        column = j.smin(last_j)
        rhs_j, out_j = rec.rhs.element(t, column), rec.result.element(t, column)
        with f.loop(rec.m, step=block.rows) as i:
            row = i.smin(last_i)
            lhs_i, out_i = rec.lhs.at(row * lhs_row), out_j.at(row * ldc)
            lhs, out = (
                [at.at(way * r) for r in rows] for at, way in ((lhs_i, lhs_row), (out_i, ldc))
            )
            with f.repeat(0, *nothing) as depth:
                d, *sums = depth.values
                rhs_d, way = rhs_j.at(d * ldb), d * lhs_step
                right = []
                for v in vectors:
                    address = rhs_d.element(vector, v)
                    if v == partial:
                        right.append(masked_load(address, vector, mask, 4))
                    else:
                        right.append(address.load(vector, align=4))
                left = [splat(start.at(way).load(t), block.lanes) for start in lhs]
                products = [a.combined("fmul contract", b) for a in left for b in right]
                sums = [x.combined("fadd contract", y) for x, y in zip(sums, products, strict=True)]
                depth.again(d + 1, *sums, when=(d + 1).ult(rec.k))
            for n, total in enumerate(sums):
                r, v = divmod(n, block.vectors)
                address = out[r].element(vector, v)
                if v == partial:
                    masked_store(address, total, mask, 4)
                else:
                    address.store(total, align=4)
    return f.end() + "\n"
