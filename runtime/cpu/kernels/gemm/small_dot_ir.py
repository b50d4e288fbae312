"""Native code of small products: sums stay in registers, and matrices are not packed.

For each depth V vectors of the row-major rhs are loaded, and each of R elements of lhs is multiplied with all of them.
The last blocks of R rows and V vectors end with the matrix, so they overlap the blocks before and compute some results
again, which are the same: a sum does not depend on its block. If a block has more columns than the matrix, its last
vector is partial.

    R = 2, V = 2      rhs[d]    ···[ v0 ][ v1 ]···
    lhs[i, d]                      + s00  + s01        s00 += lhs[i, d] * v0
    lhs[i + 1, d]                  + s10  + s11
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.codegen.ir.record_loads import again
from runtime.cpu.kernels.gemm.native_dot import GEMM, NO_TRANSPOSE, TYPES, RegisterBlock
from spmd.shape import PrimitiveType


def small_gemm_ir(kind: PrimitiveType, block: RegisterBlock) -> str:
    """Return ``GEMM`` for products that ``block`` suits, with a row-major rhs; lhs may be transposed."""
    t = TYPES[kind]
    vector = f"<{block.lanes} x {t}>"
    lines = _Lines(t, vector, block)
    rows, vectors = range(block.rows), range(block.vectors)
    sums = [(r, v) for r in rows for v in vectors]
    return _PRODUCT.format(
        name=GEMM,
        t=t,
        vector=vector,
        lanes=block.lanes,
        suffix=f"v{block.lanes}f{8 * kind.byte_size}",
        size=kind.byte_size,
        rows=block.rows,
        columns=block.columns,
        no_transpose=NO_TRANSPOSE,
        numbers=", ".join(f"i64 {i}" for i in range(block.lanes)),
        before_last=block.columns - block.lanes,
        begins="\n".join(map(lines.begin, rows)),
        sums="\n".join(lines.sum(r, v) for r, v in sums),
        reads="\n".join(map(lines.read, vectors)),
        spreads="\n".join(map(lines.spread, rows)),
        adds="\n".join(lines.add(r, v) for r, v in sums),
        writes="\n".join(lines.write(r, v) for r, v in sums),
        next_depth=again("d", "k", "depth", "write"),
        next_row=again("i", "m", "row", "column_end", block.rows),
        next_column=again("j", "n", "column", "end", block.columns),
    )


@dataclass(frozen=True, slots=True)
class _Lines:
    """IR lines for row r or vector v of a block."""

    t: str
    vector: str
    block: RegisterBlock

    def begin(self, r: int) -> str:
        return (
            f"  %lhs_way{r} = mul i64 %lhs_row, {r}\n"
            f"  %lhs{r} = getelementptr i8, ptr %lhs_i, i64 %lhs_way{r}\n"
            f"  %out_way{r} = mul i64 %out_line, {r}\n"
            f"  %out{r} = getelementptr i8, ptr %out_i, i64 %out_way{r}"
        )

    def sum(self, r: int, v: int) -> str:
        return f"  %s{r}_{v} = phi {self.vector} [ zeroinitializer, %row ], [ %t{r}_{v}, %depth ]"

    def read(self, v: int) -> str:
        address = f"  %b_at{v} = getelementptr {self.vector}, ptr %rhs_d, i64 {v}\n"
        if self._is_part(v):
            return address + f"  %b{v} = call {self.vector} @read_part(ptr %b_at{v}, i64 %n)"
        return address + f"  %b{v} = load {self.vector}, ptr %b_at{v}, align 4"

    def spread(self, r: int) -> str:
        """Broadcast an element of lhs to all lanes."""
        return (
            f"  %a_at{r} = getelementptr i8, ptr %lhs{r}, i64 %depth_way\n"
            f"  %number{r} = load {self.t}, ptr %a_at{r}\n"
            f"  %lane{r} = insertelement {self.vector} poison, {self.t} %number{r}, i32 0\n"
            f"  %a{r} = shufflevector {self.vector} %lane{r}, {self.vector} poison, "
            f"<{self.block.lanes} x i32> zeroinitializer"
        )

    def add(self, r: int, v: int) -> str:
        return (
            f"  %p{r}_{v} = fmul contract {self.vector} %a{r}, %b{v}\n"
            f"  %t{r}_{v} = fadd contract {self.vector} %s{r}_{v}, %p{r}_{v}"
        )

    def write(self, r: int, v: int) -> str:
        address = f"  %to{r}_{v} = getelementptr {self.vector}, ptr %out{r}, i64 {v}\n"
        if self._is_part(v):
            arguments = f"{self.vector} %t{r}_{v}, ptr %to{r}_{v}, i64 %n"
            return address + f"  call void @write_part({arguments})"
        return address + f"  store {self.vector} %t{r}_{v}, ptr %to{r}_{v}, align 4"

    def _is_part(self, v: int) -> bool:
        return self.block.is_wider and v == self.block.vectors - 1


_PRODUCT = """
declare {vector} @llvm.masked.load.{suffix}.p0(ptr, i32, <{lanes} x i1>, {vector})
declare void @llvm.masked.store.{suffix}.p0({vector}, ptr, i32, <{lanes} x i1>)

define internal <{lanes} x i1> @part(i64 %n) alwaysinline {{
  %count = sub i64 %n, {before_last}
  %lane = insertelement <{lanes} x i64> poison, i64 %count, i32 0
  %counts = shufflevector <{lanes} x i64> %lane, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer
  %is_there = icmp ult <{lanes} x i64> <{numbers}>, %counts
  ret <{lanes} x i1> %is_there
}}

define internal {vector} @read_part(ptr %at, i64 %n) alwaysinline {{
  %part = call <{lanes} x i1> @part(i64 %n)
  %x = call {vector} @llvm.masked.load.{suffix}.p0(ptr %at, i32 4, <{lanes} x i1> %part, {vector} zeroinitializer)
  ret {vector} %x
}}

define internal void @write_part({vector} %x, ptr %at, i64 %n) alwaysinline {{
  %part = call <{lanes} x i1> @part(i64 %n)
  call void @llvm.masked.store.{suffix}.p0({vector} %x, ptr %at, i32 4, <{lanes} x i1> %part)
  ret void
}}

define internal i64 @at_most(i64 %at, i64 %last) alwaysinline {{
  %fits = icmp sle i64 %at, %last
  %here = select i1 %fits, i64 %at, i64 %last
  ret i64 %here
}}

define void @{name}(ptr %record) {{
entry:
  %lhs = call ptr @pointer(ptr %record, i64 0)
  %rhs = call ptr @pointer(ptr %record, i64 1)
  %result = call ptr @pointer(ptr %record, i64 2)
  %m = call i64 @word(ptr %record, i64 3)
  %n = call i64 @word(ptr %record, i64 4)
  %k = call i64 @word(ptr %record, i64 5)
  %leading_lhs = call i64 @word(ptr %record, i64 6)
  %leading_rhs = call i64 @word(ptr %record, i64 7)
  %leading_out = call i64 @word(ptr %record, i64 8)
  %size = add i64 0, {size}
  %lhs_line = mul i64 %leading_lhs, {size}
  %rhs_line = mul i64 %leading_rhs, {size}
  %out_line = mul i64 %leading_out, {size}
  %transpose_lhs = call i64 @word(ptr %record, i64 9)
  %is_by_row = icmp eq i64 %transpose_lhs, {no_transpose}
  %lhs_row = select i1 %is_by_row, i64 %lhs_line, i64 %size
  %lhs_step = select i1 %is_by_row, i64 %size, i64 %lhs_line
  %last_i = sub i64 %m, {rows}
  %over = sub i64 %n, {columns}
  %is_over = icmp sgt i64 %over, 0
  %last_j = select i1 %is_over, i64 %over, i64 0
  br label %column
column:
  %j = phi i64 [ 0, %entry ], [ %next_j, %column_end ]
  %j_here = call i64 @at_most(i64 %j, i64 %last_j)
  %rhs_j = getelementptr {t}, ptr %rhs, i64 %j_here
  %out_j = getelementptr {t}, ptr %result, i64 %j_here
  br label %row
row:
  %i = phi i64 [ 0, %column ], [ %next_i, %write ]
  %i_here = call i64 @at_most(i64 %i, i64 %last_i)
  %lhs_way = mul i64 %i_here, %lhs_row
  %lhs_i = getelementptr i8, ptr %lhs, i64 %lhs_way
  %out_way = mul i64 %i_here, %out_line
  %out_i = getelementptr i8, ptr %out_j, i64 %out_way
{begins}
  br label %depth
depth:
  %d = phi i64 [ 0, %row ], [ %next_d, %depth ]
{sums}
  %rhs_way = mul i64 %d, %rhs_line
  %rhs_d = getelementptr i8, ptr %rhs_j, i64 %rhs_way
  %depth_way = mul i64 %d, %lhs_step
{reads}
{spreads}
{adds}
{next_depth}
write:
{writes}
{next_row}
column_end:
{next_column}
end:
  ret void
}}
"""
