"""LLVM IR of the innermost loop without a tile unit: the product of two packed panels, in vector registers.

Panels have the tile unit's layout (tile_types.py), which suits the vector instructions for pairs of bf16 and groups of
four bytes, too: a word of a row of lhs, in all lanes, times a vector of words of rhs. A block of 8 rows and 32 columns
is summed in 16 registers, enough to hide an instruction's latency.

The instruction for bytes multiplies unsigned by signed ones. If both operands have one type, lhs is shifted by 128 (by
an exclusive or), and the sums of each column start with the correction of that.
"""

from __future__ import annotations

from runtime.cpu.kernels.gemm.tile_types import BLOCK_ROW, LINES, TileTypes, repeated

#: Rows of a block that is summed in registers.
ROWS = 8
_WORD = 4
#: Bytes of a row of words of a panel, and of 16 columns of words.
_ROW = LINES * _WORD
_HALF = LINES * _ROW
_INTS = f"<{LINES} x i32>"
#: 128 in each byte, which flips the sign bits.
_FLIPPED_SIGNS = repeated(-0x7F7F7F80, "i32")


def multiply_ir(types: TileTypes) -> str:
    """Return ``@multiply(lhs, rhs, steps, rows, columns, total)``, of panels of at most 32 rows and 32 columns."""
    corrected = _is_corrected(types)
    functions = [_sum_rows(types, ROWS, columns) for columns in (1, 2)]
    if corrected:
        functions += [_sum_rows(types, 0, columns) for columns in (1, 2)]
    return "".join([_declaration(types), *functions, _multiply(corrected=corrected)])


def _is_corrected(types: TileTypes) -> bool:
    return not types.is_float and types.lhs is types.rhs


def _element_vectors(types: TileTypes) -> tuple[str, str, str]:
    """Return LLVM's name of the instruction and the types of sums and operands (words of bytes, as before LLVM 22)."""
    if types.is_float:
        return "llvm.x86.avx512bf16.dpbf16ps.512", f"<{LINES} x float>", f"<{2 * LINES} x bfloat>"
    return "llvm.x86.avx512.vpdpbusd.512", _INTS, _INTS


def _declaration(types: TileTypes) -> str:
    """Return the instruction's declaration, from which LLVM knows that it is that of earlier versions."""
    name, sums, elements = _element_vectors(types)
    return f"\ndeclare {sums} @{name}({sums}, {elements}, {elements})\n"


def _product(types: TileTypes, to: str, total: str, lhs: str, rhs: str) -> list[str]:
    """Return lines that compute ``to``, the sums ``total`` plus the products of words."""
    name, sums, elements = _element_vectors(types)
    lhs_has_sign = not types.is_float and not types.rhs.is_signed_integer
    first, second = (rhs, lhs) if lhs_has_sign else (lhs, rhs)
    return [
        f"  {to}_first = bitcast {_INTS} {first} to {elements}",
        f"  {to}_second = bitcast {_INTS} {second} to {elements}",
        f"  {to} = call {sums} @{name}({sums} {total}, {elements} {to}_first, {elements} {to}_second)",
    ]


def _sum_rows(types: TileTypes, rows: int, columns: int) -> str:
    """Return ``@rows{rows}by{columns}(lhs, rhs, words, first, total)``: some rows times 16 or 32 columns.

    first: the corrections with which the sums of each column start, if any. With 0 rows the function computes these:
    the negative products of a row of 128.
    """
    _, sums, _ = _element_vectors(types)
    corrected = _is_corrected(types)
    cells = [(r, c) for r in range(max(rows, 1)) for c in range(columns)]
    first, phis, body, stores = [], [], [], []
    for c in range(columns):
        if corrected and rows:
            first += [
                f"  %first_at{c} = getelementptr i8, ptr %first, i64 {c * _ROW}",
                f"  %first{c} = load {sums}, ptr %first_at{c}, align 64",
            ]
        body += [
            f"  %rhs_at{c} = getelementptr i8, ptr %rhs_w, i64 {c * _HALF}",
            f"  %rhs{c} = load {_INTS}, ptr %rhs_at{c}, align 64",
        ]
    for r in range(max(rows, 1)):
        body += _lhs_vector(types, r) if rows else []
        for c in range(columns):
            lhs = f"%lhs{r}" if rows else _FLIPPED_SIGNS
            body += _product(types, f"%sum{r}_{c}", f"%before{r}_{c}", lhs, f"%rhs{c}")
    for r, c in cells:
        begin = f"%first{c}" if corrected and rows else "zeroinitializer"
        phis.append(f"  %before{r}_{c} = phi {sums} [ {begin}, %entry ], [ %sum{r}_{c}, %loop ]")
        result = f"%sum{r}_{c}"
        if not rows:
            stores.append(f"  %less{c} = sub {sums} zeroinitializer, {result}")
            result = f"%less{c}"
        stores += [
            f"  %to{r}_{c} = getelementptr i8, ptr %total, i64 {r * BLOCK_ROW + c * _ROW}",
            f"  store {sums} {result}, ptr %to{r}_{c}, align 64",
        ]
    return _SUM_ROWS.format(
        name=f"rows{rows}by{columns}",
        first="\n".join(first),
        phis="\n".join(phis),
        body="\n".join(body),
        stores="\n".join(stores),
        step_bytes=types.step_bytes,
        row=_ROW,
        word=_WORD,
        last_word=LINES - 1,
        log_words=LINES.bit_length() - 1,
    )


def _lhs_vector(types: TileTypes, row: int) -> list[str]:
    """Return lines that broadcast a word of row ``row`` to ``%lhs{row}``."""
    spread = f"{_INTS} %one{row}, {_INTS} poison, {_INTS} zeroinitializer"
    lines = [
        f"  %lhs_at{row} = getelementptr i8, ptr %lhs_w, i64 {row * _ROW}",
        f"  %word{row} = load i32, ptr %lhs_at{row}, align 4",
        f"  %one{row} = insertelement {_INTS} poison, i32 %word{row}, i32 0",
    ]
    if not _is_corrected(types):
        return [*lines, f"  %lhs{row} = shufflevector {spread}"]
    return [
        *lines,
        f"  %spread{row} = shufflevector {spread}",
        f"  %lhs{row} = xor {_INTS} %spread{row}, {_FLIPPED_SIGNS}",
    ]


_SUM_ROWS = """
define internal void @{name}(ptr %lhs, ptr %rhs, i64 %words, ptr %first, ptr %total) noinline {{
entry:
{first}
  br label %loop
loop:
  %w = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
  %step = lshr i64 %w, {log_words}
  %in_step = and i64 %w, {last_word}
  %step_way = mul i64 %step, {step_bytes}
  %lhs_way = mul i64 %in_step, {word}
  %rhs_way = mul i64 %in_step, {row}
  %lhs_step = getelementptr i8, ptr %lhs, i64 %step_way
  %rhs_step = getelementptr i8, ptr %rhs, i64 %step_way
  %lhs_w = getelementptr i8, ptr %lhs_step, i64 %lhs_way
  %rhs_w = getelementptr i8, ptr %rhs_step, i64 %rhs_way
{body}
  %next = add nuw i64 %w, 1
  %more = icmp ult i64 %next, %words
  br i1 %more, label %loop, label %end
end:
{stores}
  ret void
}}
"""


def _multiply(*, corrected: bool) -> str:
    corrections = [
        "\n".join(
            f"  call void @rows0by{columns}(ptr %lhs, ptr %rhs, i64 %words, ptr %first, ptr %first)"
            for _ in range(int(corrected))
        )
        for columns in (1, 2)
    ]
    return _MULTIPLY.format(
        lines=LINES,
        rows=ROWS,
        row=_ROW,
        block_row=BLOCK_ROW,
        first1=corrections[0],
        first2=corrections[1],
    )


_MULTIPLY = """
define internal void @multiply(ptr %lhs, ptr %rhs, i64 %steps, i64 %rows, i64 %columns, ptr %total) noinline {{
entry:
  %first = alloca [{block_row} x i8], align 64
  %words = mul i64 %steps, {lines}
  %two = icmp ugt i64 %columns, {lines}
  br i1 %two, label %begin2, label %begin1
begin1:
{first1}
  br label %loop
begin2:
{first2}
  br label %loop
loop:
  %r = phi i64 [ 0, %begin1 ], [ 0, %begin2 ], [ %next, %summed ]
  %lhs_way = mul i64 %r, {row}
  %lhs_r = getelementptr i8, ptr %lhs, i64 %lhs_way
  %way = mul i64 %r, {block_row}
  %total_r = getelementptr i8, ptr %total, i64 %way
  br i1 %two, label %by2, label %by1
by1:
  call void @rows{rows}by1(ptr %lhs_r, ptr %rhs, i64 %words, ptr %first, ptr %total_r)
  br label %summed
by2:
  call void @rows{rows}by2(ptr %lhs_r, ptr %rhs, i64 %words, ptr %first, ptr %total_r)
  br label %summed
summed:
  %next = add nuw i64 %r, {rows}
  %more = icmp ult i64 %next, %rows
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
