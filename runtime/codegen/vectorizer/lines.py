"""Rewriting of straight-line scalar LLVM IR as vector IR, line by line.

A loop-invariant value stays scalar and is broadcast where an instruction combines it with a vector.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from runtime.codegen.elements.variants import LANES, variant
from runtime.codegen.vectorizer.functions import (
    LINE,
    Function,
    Functions,
    NoVectorsError,
    size_of,
    spread,
    vector,
)
from spmd.lazy_dataclass import dataclass

#: Element sizes in bytes for which processors have gathers and scatters.
_GATHERED = (4, 8)
_SUFFIXES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_TWO = re.compile(r"((?:\w+ )*?)(\w+) ([^ ,]+), ([^ ,]+)$")
_CAST = re.compile(r"((?:\w+ )*?)(\w+) ([^ ,]+) to (\w+)$")
_ONE = re.compile(r"((?:\w+ )*?)(\w+) ([^ ,]+)$")
_SELECT = re.compile(r"((?:\w+ )*?)i1 ([^ ,]+), (\w+) ([^ ,]+), (\w+) ([^ ,]+)$")
_CALL = re.compile(r"(\{.*?\}|\w+) @([\w.]+)\((.*)\)$")
_INSERT = re.compile(r"(\{.*?\}) ([^ ,]+), (\w+) ([^ ,]+), (\d+)$")
_EXTRACT = re.compile(r"(\{.*?\}) ([^ ,]+), (\d+)$")
_GETELEMENTPTR = re.compile(r"(\w+), ptr (%[\w.]+), i64 (%?[\w.]+)$")
_LOAD = re.compile(r"(\w+), ptr (%[\w.]+)(?:, align \d+)?(?:, !llvm.access.group !0)?$")
_STORE = re.compile(
    r"store (\w+) ([^ ,]+), ptr (%[\w.]+)(?:, align \d+)?(?:, !llvm.access.group !0)?$"
)
_SUFFIX = re.compile(r"\.(f16|bf16|f32|f64|i\d+)\b")
_INTEGERS = (
    "add",
    "sub",
    "mul",
    "udiv",
    "sdiv",
    "urem",
    "srem",
    "shl",
    "lshr",
    "ashr",
    "and",
    "or",
    "xor",
)
_FLOATS = ("fadd", "fsub", "fmul", "fdiv", "frem")
_BINARY = frozenset((*_INTEGERS, *_FLOATS, "icmp", "fcmp"))
_CASTS = frozenset(
    ("bitcast", "trunc", "zext", "sext", "fptrunc", "fpext", "fptosi", "fptoui", "sitofp", "uitofp")
)
_ONES = frozenset(("fneg", "freeze"))


@dataclass
class VectorLines:
    """Writer of the vector lines of a loop's body or of a function.

    ``mask`` names the mask of the active elements, or is None if all are active. ``room`` lists the stack arrays that
    have room for all elements, active or not. New names begin with ``prefix``.
    """

    functions: Functions
    lanes: int
    mask: str | None = None
    room: frozenset[str] = frozenset()
    prefix: str = "%."
    index: str = ""
    out: list[str] = field(default_factory=list)
    wide: set[str] = field(default_factory=set)
    #: Scalars that grow by one from element to element; the register holds the value for the first.
    counting: set[str] = field(default_factory=set)
    #: Type and array of each address of consecutive elements.
    consecutive: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: Stride of each scalar or address that grows by a loop-invariant stride from element to element.
    strided: dict[str, str] = field(default_factory=dict)
    _spread: dict[tuple[str, str], str] = field(default_factory=dict)

    def body(self, index: str, lines: Iterable[str]) -> list[str]:
        """Return the vector lines of a loop's body, whose induction variable is ``index``."""
        self.counting.add(index)
        self.index = index
        for line in lines:
            self.line(line.strip())
        return [f"  {line}" for line in self.out]

    def function(self, lines: Iterable[str]) -> list[str]:
        """Return the vector lines of a function's body."""
        for line in lines:
            if line.startswith("ret "):
                result, value = line[4:].rsplit(" ", 1)
                self.out.append(f"ret {vector(result, self.lanes)} {self.vector(result, value)}")
            else:
                self.line(line)
        return self.out

    def line(self, line: str) -> None:
        """Write the vector form of a scalar line. Raises NoVectorsError if there is none."""
        found = LINE.match(line)
        if found is None:
            self.store(line)
            return
        name, op, rest = found[1], found[2], found[3]
        if op == "getelementptr":
            self.element_address(line, name, rest)
        elif op == "load":
            self.load(line, name, rest)
        else:
            made = self.computed(name, op, rest)
            if made is None:
                self.out.append(line)
            else:
                self.out.append(f"{name} = {made}")
                self.wide.add(name)

    # ---- values
    def is_wide(self, *values: str) -> bool:
        """Return whether any of ``values`` differs from element to element."""
        varying = (self.wide, self.counting, self.strided)
        return any(value in names for value in values for names in varying)

    def vector(self, element: str, value: str) -> str:
        """Return ``value`` of type ``element`` as a vector, which broadcasts a loop-invariant scalar."""
        if value in self.wide:
            return value
        if not value.startswith("%"):
            is_empty = value in ("undef", "poison", "zeroinitializer")
            return value if is_empty else f"splat ({element} {value})"
        if element == "ptr" and value in self.strided:
            raise NoVectorsError(value)
        key = (element, value)
        if key not in self._spread:
            name = self._spread[key] = f"{self.prefix}s{len(self._spread)}"
            self.out += spread(element, self.lanes, value, name)
            if value in self.counting:
                numbers = ", ".join(f"{element} {i}" for i in range(self.lanes))
                v = f"<{self.lanes} x {element}>"
                self.out.append(f"{name}.counted = add {v} {name}, <{numbers}>")
                self._spread[key] = f"{name}.counted"
            elif value in self.strided:
                steps = self.steps(element, self.strided[value])
                self.out.append(f"{name}.moved = add <{self.lanes} x {element}> {name}, {steps}")
                self._spread[key] = f"{name}.moved"
        return self._spread[key]

    def steps(self, element: str, stride: str) -> str:
        """Return the vector 0, ``stride``, 2 ``stride``, .. of type ``element``."""
        key = (element, f"{stride} steps")
        if key not in self._spread:
            numbers = ", ".join(f"{element} {i}" for i in range(self.lanes))
            each = self.vector(element, stride)
            name = self._spread[key] = f"{self.prefix}m{len(self._spread)}"
            self.out.append(f"{name} = mul <{self.lanes} x {element}> {each}, <{numbers}>")
        return self._spread[key]

    def computed(self, name: str, op: str, rest: str) -> str | None:
        """Return the vector instruction that replaces ``op``, or None if the line stays scalar."""
        for ops, pattern, make in _REWRITES:
            if op in ops:
                found = pattern.match(rest)
                if found is None:
                    raise NoVectorsError(rest)
                return make(self, name, op, found)
        raise NoVectorsError(op)

    def two(self, name: str, op: str, found: re.Match[str]) -> str | None:
        flags, t, a, b = found.groups()
        if not self.is_wide(a, b):
            return None
        counts = [value for value in (a, b) if value in self.counting]
        if op == "add" and len(counts) == 1 and not (a in self.wide or b in self.wide):
            self.counting.add(name)
            return None
        if op == "mul" and len(counts) == 1 and not self.is_wide(*({a, b} - {*counts})):
            (self.strided[name],) = {a, b} - {*counts}
            return None
        left, right = self.vector(t, a), self.vector(t, b)
        return f"{op} {flags}{vector(t, self.lanes)} {left}, {right}"

    def cast(self, _name: str, op: str, found: re.Match[str]) -> str | None:
        flags, t, a, target = found.groups()
        if not self.is_wide(a):
            return None
        own, other = vector(t, self.lanes), vector(target, self.lanes)
        return f"{op} {flags}{own} {self.vector(t, a)} to {other}"

    def one(self, _name: str, op: str, found: re.Match[str]) -> str | None:
        flags, t, a = found.groups()
        if not self.is_wide(a):
            return None
        return f"{op} {flags}{vector(t, self.lanes)} {self.vector(t, a)}"

    def select(self, _name: str, op: str, found: re.Match[str]) -> str | None:
        flags, c, t, a, u, b = found.groups()
        if not self.is_wide(c, a, b):
            return None
        chosen = f"<{self.lanes} x i1> {c}" if c in self.wide else f"i1 {c}"
        left, right = self.vector(t, a), self.vector(u, b)
        v = vector(t, self.lanes)
        return f"{op} {flags}{chosen}, {v} {left}, {v} {right}"

    def insert(self, _name: str, op: str, found: re.Match[str]) -> str | None:
        struct, base, t, a, number = found.groups()
        if not self.is_wide(a, base) and base not in ("undef", "poison"):
            raise NoVectorsError(struct)
        value = self.vector(t, a)
        own, v = vector(struct, self.lanes), vector(t, self.lanes)
        return f"{op} {own} {base}, {v} {value}, {number}"

    def extract(self, _name: str, op: str, found: re.Match[str]) -> str | None:
        struct, base, number = found.groups()
        return f"{op} {vector(struct, self.lanes)} {base}, {number}" if base in self.wide else None

    def call(self, _name: str, op: str, found: re.Match[str]) -> str | None:
        result, called, listed = found.groups()
        arguments = [argument.rsplit(" ", 1) for argument in listed.split(", ") if argument]
        wide = [self.is_wide(value) for _, value in arguments]
        is_struct = result.startswith("{")
        if not any(wide) and not is_struct:
            return None
        own = vector(result, self.lanes)
        if called.startswith("llvm."):
            return f"{op} {own} {self.intrinsic(own, called, arguments)}"
        made = self.called(called, wide)
        given = ", ".join(
            f"{vector(t, self.lanes)} {self.vector(t, value)}" if one else f"{t} {value}"
            for (t, value), one in zip(arguments, wide, strict=True)
        )
        return f"{op} {own} @{made}({given})"

    def called(self, name: str, wide: Sequence[bool]) -> str:
        """Return the name of the variant of function ``name`` whose arguments are vectors where ``wide``."""
        function = self.functions.named(name)
        if function.has_variants:
            if self.lanes not in LANES or not all(wide):
                raise NoVectorsError(name)
            return variant(name, self.lanes)
        made = f"{name}.{self.lanes}{''.join('vs'[not one] for one in wide)}"
        self.functions.make(made, lambda: self.written(made, function, wide))
        return made

    def written(self, made: str, function: Function, wide: Sequence[bool]) -> str:
        """Return the text of ``function`` for vector arguments where ``wide``, under the name ``made``."""
        parameters = list(zip(function.parameters, wide, strict=True))
        scope = VectorLines(
            self.functions, self.lanes, wide={p for (_, p), one in parameters if one}
        )
        lines = "\n  ".join(scope.function(function.lines))
        types = [vector(t, self.lanes) if one else t for (t, _), one in parameters]
        listed = ", ".join(f"{t} {p}" for t, ((_, p), _) in zip(types, parameters, strict=True))
        result = vector(function.result, self.lanes)
        return f"define internal {result} @{made}({listed}) alwaysinline {{\n  {lines}\n}}"

    def intrinsic(self, result: str, called: str, arguments: Sequence[Sequence[str]]) -> str:
        if called.startswith(("llvm.x86", "llvm.powi")):
            raise NoVectorsError(called)
        name = _SUFFIX.sub(lambda m: f".v{self.lanes}{m[1]}", called)
        # Flag arguments of intrinsics stay scalar.
        is_flag = [t == "i1" and not value.startswith("%") for t, value in arguments]
        types = [
            t if flag else vector(t, self.lanes)
            for (t, _), flag in zip(arguments, is_flag, strict=True)
        ]
        values = [
            value if flag else self.vector(t, value)
            for (t, value), flag in zip(arguments, is_flag, strict=True)
        ]
        return f"@{name}({', '.join(map(' '.join, zip(types, values, strict=True)))})"

    # ---- memory
    def element_address(self, line: str, name: str, rest: str) -> None:
        found = _GETELEMENTPTR.match(rest)
        if found is None or found[2] in self.consecutive or self.wide & {found[2], found[3]}:
            raise NoVectorsError(line)
        if found[2] in self.strided:
            if self.is_wide(found[3]):
                raise NoVectorsError(line)
            self.strided[name] = self.strided[found[2]]
        elif found[3] in self.strided:
            if found[1] != "i8":
                raise NoVectorsError(line)
            self.strided[name] = self.strided[found[3]]
        elif found[3] in self.counting:
            # The room of a stack array is known from its begin on only.
            self.consecutive[name] = found[1], found[2] if found[3] == self.index else ""
        self.out.append(line)

    def load(self, line: str, name: str, rest: str) -> None:
        found = _LOAD.match(rest)
        if found is None or found[2] in self.wide:
            raise NoVectorsError(line)
        t, address = found.groups()
        if address in self.strided:
            self.out.append(f"{name} = {self.gathered(t, address)}")
        elif address in self.consecutive:
            self.out.append(f"{name} = {self.loaded(t, address)}")
        else:
            self.out.append(line)
            return
        self.wide.add(name)

    def gathered(self, t: str, address: str) -> str:
        """Return the load of elements of type ``t`` at strided addresses, the first of which is ``address``."""
        v, n = f"<{self.lanes} x {t}>", self.lanes
        function = f"@llvm.masked.gather.v{n}{_SUFFIXES.get(t, t)}.v{n}p0"
        return f"call {v} {function}({self.addresses(t, address)}, {v} zeroinitializer)"

    def scattered(self, t: str, value: str, address: str) -> str:
        """Return the store of elements of type ``t`` at strided addresses, the first of which is ``address``."""
        v, n = f"<{self.lanes} x {t}>", self.lanes
        function = f"@llvm.masked.scatter.v{n}{_SUFFIXES.get(t, t)}.v{n}p0"
        stored = self.vector(t, value)
        return f"call void {function}({v} {stored}, {self.addresses(t, address)})"

    def addresses(self, t: str, address: str) -> str:
        """Return the address, alignment and mask arguments of a gather or scatter.

        Raises NoVectorsError for elements of a size that processors do not gather.
        """
        if size_of(t) not in _GATHERED:
            raise NoVectorsError(address)
        key, n = ("ptr", address), self.lanes
        if key not in self._spread:
            steps = self.steps("i64", self.strided[address])
            name = self._spread[key] = f"{self.prefix}a{len(self._spread)}"
            self.out.append(f"{name} = getelementptr i8, ptr {address}, <{n} x i64> {steps}")
        mask = self.mask or "splat (i1 true)"
        return f"<{n} x ptr> {self._spread[key]}, i32 {size_of(t)}, <{n} x i1> {mask}"

    def loaded(self, t: str, address: str) -> str:
        element, base = self.consecutive[address]
        if element != t:
            raise NoVectorsError(address)
        v, size = f"<{self.lanes} x {t}>", size_of(t)
        if self.mask is None or base in self.room:
            return f"load {v}, ptr {address}, align {size}"
        mask = f"<{self.lanes} x i1>"
        function = f"@llvm.masked.load.v{self.lanes}{_SUFFIXES.get(t, t)}.p0"
        given = f"ptr {address}, i32 {size}, {mask} {self.mask}, {v} zeroinitializer"
        return f"call {v} {function}({given})"

    def store(self, line: str) -> None:
        found = _STORE.match(line)
        if found is None or found[3] not in {*self.consecutive, *self.strided}:
            raise NoVectorsError(line)
        t, value, address = found.groups()
        if address in self.strided:
            self.out.append(self.scattered(t, value, address))
            return
        element, base = self.consecutive[address]
        if element != t:
            raise NoVectorsError(line)
        v, size, stored = f"<{self.lanes} x {t}>", size_of(t), self.vector(t, value)
        mask = f"<{self.lanes} x i1> {self.mask}"
        if self.mask is not None and base not in self.room:
            function = f"@llvm.masked.store.v{self.lanes}{_SUFFIXES.get(t, t)}.p0"
            self.out.append(
                f"call void {function}({v} {stored}, ptr {address}, i32 {size}, {mask})"
            )
            return
        if self.mask is not None:
            before = f"{self.prefix}before{len(self.out)}"
            self.out.append(f"{before} = load {v}, ptr {address}, align {size}")
            self.out.append(f"{before}.new = select {mask}, {v} {stored}, {v} {before}")
            stored = f"{before}.new"
        self.out.append(f"store {v} {stored}, ptr {address}, align {size}")


_Make = Callable[[VectorLines, str, str, "re.Match[str]"], str | None]
_REWRITES: tuple[tuple[frozenset[str], re.Pattern[str], _Make], ...] = (
    (_BINARY, _TWO, VectorLines.two),
    (_CASTS, _CAST, VectorLines.cast),
    (_ONES, _ONE, VectorLines.one),
    (frozenset(("select",)), _SELECT, VectorLines.select),
    (frozenset(("call",)), _CALL, VectorLines.call),
    (frozenset(("insertvalue",)), _INSERT, VectorLines.insert),
    (frozenset(("extractvalue",)), _EXTRACT, VectorLines.extract),
)
