"""Values of generated code other than numbers: addresses, with loads and stores, and vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runtime.codegen.elements.builder import Bool, Code, Float, Int, IntLike, Value
from runtime.codegen.elements.formats import F32, F64, FloatFormat

#: Mark of the loads and stores of a vector loop, whose metadata declares accesses with this mark independent.
INDEPENDENT = ", !llvm.access.group !0"


class Pointer(Value):
    """Address. ``at`` moves it by bytes, ``element`` by elements of a type."""

    __slots__ = ()

    def __init__(self, code: Code, name: str) -> None:
        self.code = code
        self.type = "ptr"
        self.name = name

    def at(self, offset: IntLike) -> Pointer:
        """Return the address ``offset`` bytes after this one."""
        code = self.code
        way = offset.name if isinstance(offset, Int) else offset
        return Pointer(code, code.append(f"getelementptr i8, ptr {self.name}, i64 {way}"))

    def element(self, kind: str, number: IntLike) -> Pointer:
        """Return the address of element ``number`` of an array of type ``kind`` that begins at this address."""
        code = self.code
        index = number.name if isinstance(number, Int) else number
        return Pointer(code, code.append(f"getelementptr {kind}, ptr {self.name}, i64 {index}"))

    def load(self, kind: str | FloatFormat = "i64", align: int = 0, *, order: str = "") -> Any:
        """Load a value of type ``kind``, atomically if a memory ``order`` is given."""
        code = self.code
        if not isinstance(kind, str):
            return Float(code, kind, self.load(kind.name, align).name)
        mark = f", align {align}" if align else ""
        if order:
            line = f"load atomic {kind}, ptr {self.name} {order}{mark or ', align 8'}"
        else:
            line = f"load {kind}, ptr {self.name}{mark}{code.access}"
        return typed(code, kind, code.append(line))

    def word(self, number: IntLike = 0) -> Int:
        """Load the 64-bit number that is ``number`` words after this address."""
        address = self.element("i64", number) if number.__class__ is not int or number else self
        return Int(self.code, "i64", self.code.append(f"load i64, ptr {address.name}"))

    def pointer(self, number: IntLike = 0) -> Pointer:
        """Load the address that is ``number`` words after this address."""
        address = self.element("ptr", number) if number.__class__ is not int or number else self
        return Pointer(self.code, self.code.append(f"load ptr, ptr {address.name}"))

    def store(self, value: Value | int, align: int = 0, *, order: str = "") -> None:
        """Store ``value``, atomically if a memory ``order`` is given. A Python number is a 64-bit word."""
        code = self.code
        kind, name = ("i64", value) if isinstance(value, int) else (value.type, value.name)
        mark = f", align {align}" if align else ""
        if order:
            code.add(f"store atomic {kind} {name}, ptr {self.name} {order}{mark or ', align 8'}")
            return
        code.add(f"store {kind} {name}, ptr {self.name}{mark}{code.access}")

    def update(self, operation: str, value: IntLike, order: str) -> Int:
        """Apply ``operation`` (add, sub, ..) with ``value`` atomically to the word here. Returns the old value."""
        line = f"atomicrmw {operation} ptr {self.name}, i64 {value} {order}"
        return Int(self.code, "i64", self.code.append(line))

    def or_null(self, condition: Bool) -> Pointer:
        """Return the address if ``condition`` holds, else a null pointer."""
        line = f"select i1 {condition.name}, ptr {self.name}, ptr null"
        return Pointer(self.code, self.code.append(line))

    def is_null(self) -> Bool:
        return Bool(self.code, self.code.append(f"icmp eq ptr {self.name}, null"))

    def as_int(self) -> Int:
        return Int(self.code, "i64", self.code.append(f"ptrtoint ptr {self.name} to i64"))

    def equals(self, other: Pointer) -> Bool:
        return Bool(self.code, self.code.append(f"icmp eq ptr {self.name}, {other.name}"))

    def differs(self, other: Pointer) -> Bool:
        return Bool(self.code, self.code.append(f"icmp ne ptr {self.name}, {other.name}"))


class Vector(Value):
    """Vector of ``lanes`` elements of LLVM type ``element``."""

    __slots__ = ("element", "lanes")

    def __init__(self, code: Code, type_: str, name: str) -> None:
        self.code = code
        self.type = type_
        self.name = name
        lanes, _, element = type_[1:-1].split(" ", 2)
        self.lanes = int(lanes)
        self.element = element

    def shuffled(self, order: Sequence[int], other: Vector | None = None) -> Vector:
        """Return the elements numbered ``order``, counted through this vector and then through ``other``."""
        numbers = ", ".join([f"i32 {k}" for k in order])
        right = "poison" if other is None else other.name
        made = f"<{len(order)} x {self.element}>"
        line = (
            f"shufflevector {self.type} {self.name}, {self.type} {right}, "
            f"<{len(order)} x i32> <{numbers}>"
        )
        return Vector(self.code, made, self.code.append(line))

    def lane(self, number: int) -> Any:
        """Return the element in lane ``number``."""
        line = f"extractelement {self.type} {self.name}, i32 {number}"
        return typed(self.code, self.element, self.code.append(line))

    def combined(self, instruction: str, other: Vector | object) -> Vector:
        """Apply ``instruction`` lane by lane with another vector, or with a constant for all lanes."""
        right = other.name if isinstance(other, Vector) else f"splat ({self.element} {other})"
        line = f"{instruction} {self.type} {self.name}, {right}"
        return Vector(self.code, self.type, self.code.append(line))

    def compared(self, condition: str, other: Vector | object) -> Vector:
        """Return the mask of the lanes in which ``condition``, such as ``icmp sgt``, holds."""
        return Vector(self.code, f"<{self.lanes} x i1>", self.combined(condition, other).name)


def zeros(code: Code, kind: str) -> Vector:
    """Return the vector of LLVM type ``kind`` whose lanes are all 0."""
    return Vector(code, kind, "zeroinitializer")


def splat(element: Value, lanes: int) -> Vector:
    """Return the vector of ``lanes`` lanes that all hold ``element``."""
    code, kind = element.code, f"<{lanes} x {element.type}>"
    one = code.append(f"insertelement {kind} poison, {element.type} {element.name}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return Vector(code, kind, code.append(f"shufflevector {kind} {one}, {kind} poison, {zeros}"))


_MADE: dict[str, Callable[[Code, str], Value]] = {
    "ptr": Pointer,
    "i1": Bool,
    "float": lambda code, name: Float(code, F32, name),
    "double": lambda code, name: Float(code, F64, name),
}


def typed(code: Code, kind: str, name: str) -> Any:
    """Return register ``name``, of LLVM type ``kind``, as a value of the class for that type."""
    if kind[0] == "i" and kind != "i1":
        return Int(code, kind, name)
    if (make := _MADE.get(kind)) is not None:
        return make(code, name)
    return Vector(code, kind, name) if kind[0] == "<" else Value(code, kind, name)


def selected(condition: Value, on_true: Value, on_false: Value) -> Any:
    """Return ``on_true`` if ``condition`` holds, else ``on_false``. Both have one type; a mask selects by lane."""
    code, t = condition.code, on_true.type
    line = f"select {condition.type} {condition.name}, {t} {on_true.name}, {t} {on_false.name}"
    return typed(code, t, code.append(line))


def indices_of(number: Int, sizes: Sequence[Int]) -> list[Int]:
    """Return the index, slowest dimension first, of element ``number`` in row-major order.

    ``sizes`` are those of all dimensions but the first.
    """
    indices: list[Int] = []
    for size in reversed(sizes):
        indices.insert(0, number % size)
        number = number // size
    return [number, *indices]


def cast(value: Value, instruction: str, kind: str) -> Any:
    """Return ``value`` converted to LLVM type ``kind`` by ``instruction``, such as ``bitcast``."""
    code = value.code
    return typed(code, kind, code.append(f"{instruction} {value.type} {value.name} to {kind}"))
