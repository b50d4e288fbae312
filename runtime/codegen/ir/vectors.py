"""Operations on vectors in generated code: intrinsics, masks of the first lanes, and masked memory accesses."""

from __future__ import annotations

from runtime.codegen.elements.builder import Int, Value
from runtime.codegen.ir.values import Pointer, Vector, splat, zeros

_SUFFIXES = {"float": "f32", "double": "f64"}


def _suffix(vector: Vector) -> str:
    """Return the suffix of intrinsics for this vector type."""
    return f"v{vector.lanes}{_SUFFIXES.get(vector.element, vector.element)}"


def intrinsic(name: str, *vectors: Vector) -> Vector:
    """Call an intrinsic whose arguments and result all have the type of ``vectors``."""
    first = vectors[0]
    given = ", ".join([f"{x.type} {x.name}" for x in vectors])
    line = f"call {first.type} @llvm.{name}.{_suffix(first)}({given})"
    return Vector(first.code, first.type, first.code.append(line))


def numbers(count: Int, lanes: int) -> Vector:
    """Return the vector 0, 1, .. of ``lanes`` lanes of the type of ``count``."""
    listed = ", ".join([f"{count.type} {k}" for k in range(lanes)])
    return Vector(count.code, f"<{lanes} x {count.type}>", f"<{listed}>")


def first_lanes(count: Int, lanes: int) -> Vector:
    """Return the mask of the first ``count`` of ``lanes`` lanes, which is empty if ``count`` is negative."""
    narrow = count.smin(lanes).resized("i32")
    return splat(narrow, lanes).compared("icmp sgt", numbers(narrow, lanes))


def masked_load(pointer: Pointer, kind: str, mask: Vector, align: int) -> Vector:
    """Load the lanes of ``mask`` of a vector of type ``kind``; the other lanes are 0."""
    none = zeros(pointer.code, kind)
    given = f"ptr {pointer}, i32 {align}, {mask.type} {mask}, {kind} {none}"
    line = f"call {kind} @llvm.masked.load.{_suffix(none)}.p0({given})"
    return Vector(pointer.code, kind, pointer.code.append(line))


def masked_store(pointer: Pointer, x: Vector, mask: Vector, align: int) -> None:
    """Store the lanes of ``mask`` of ``x``."""
    given = f"{x.type} {x}, ptr {pointer}, i32 {align}, {mask.type} {mask}"
    pointer.code.add(f"call void @llvm.masked.store.{_suffix(x)}.p0({given})")


def addresses(base: Pointer, offsets: Value) -> Vector:
    """Return the vector of the addresses ``offsets`` bytes after ``base``."""
    lanes = Vector(base.code, offsets.type, offsets.name).lanes
    line = f"getelementptr i8, ptr {base}, {offsets.type} {offsets}"
    return Vector(base.code, f"<{lanes} x ptr>", base.code.append(line))


def gathered(pointers: Vector, kind: str, mask: Vector, align: int) -> Vector:
    """Load the lanes of ``mask`` of a vector of type ``kind``, each from its own address; the other lanes are 0."""
    none = zeros(pointers.code, kind)
    given = f"{pointers.type} {pointers}, i32 {align}, {mask.type} {mask}, {kind} {none}"
    line = f"call {kind} @llvm.masked.gather.{_suffix(none)}.v{none.lanes}p0({given})"
    return Vector(pointers.code, kind, pointers.code.append(line))


def scatter(pointers: Vector, x: Vector, mask: Vector, align: int) -> None:
    """Store the lanes of ``mask`` of ``x``, each to its own address."""
    given = f"{x.type} {x}, {pointers.type} {pointers}, i32 {align}, {mask.type} {mask}"
    pointers.code.add(f"call void @llvm.masked.scatter.{_suffix(x)}.v{x.lanes}p0({given})")


def prefetch(pointer: Pointer, locality: int = 3, *, writes: bool = False) -> None:
    """Prefetch the cache line at ``pointer``. ``locality`` 3 fetches it into all cache levels, 2 not into the first."""
    given = f"ptr {pointer}, i32 {int(writes)}, i32 {locality}, i32 1"
    pointer.code.add(f"call void @llvm.prefetch.p0({given})")
