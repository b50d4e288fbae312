"""Random modules of one fusion, with operands that are views of the entry's parameters."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from runtime.codegen.ir.element_operations import has_operation
from runtime.program.scalar_program import ElementSignature
from spmd.hlo import NO_ATTRS, Opcode
from spmd.hlo.opcode import CompareAttrs
from spmd.shape import PrimitiveType

P = PrimitiveType
KINDS = (P.F32, P.F32, P.BF16, P.F16, P.F64, P.S8, P.S32, P.U16, P.U64, P.PRED)
UNARY = (Opcode.NEGATE, Opcode.ABS, Opcode.NOT, Opcode.FLOOR, Opcode.SIGN, Opcode.SQRT)
BINARY = (
    *(Opcode.ADD, Opcode.SUBTRACT, Opcode.MULTIPLY, Opcode.DIVIDE, Opcode.MAXIMUM),
    *(Opcode.AND, Opcode.XOR, Opcode.SHIFT_LEFT, Opcode.REMAINDER),
)
INTEGRAL = (Opcode.NOT, Opcode.AND, Opcode.XOR, Opcode.SHIFT_LEFT)
SIZES = (1, 1, 2, 3, 4, 5, 8, 17)


@dataclass(frozen=True)
class Value:
    name: str
    kind: PrimitiveType
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind}[{','.join(map(str, self.dims))}]"


@dataclass
class Fused:
    """Lines of a fused computation that grows by random instructions."""

    dice: random.Random
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    starts: list[Value] = field(default_factory=list)

    def add(self, kind: PrimitiveType, dims: tuple[int, ...], text: str) -> Value:
        value = Value(f"v{len(self.lines)}", kind, dims)
        self.lines.append(f"{value.name} = {value} {text}")
        self.values.append(value)
        return value

    def grow(self) -> None:
        x = self.dice.choice(self.values[-6:])
        step = self.dice.choice(
            [
                *(self.compute, self.compute, self.compute, self.rearrange, self.rearrange),
                *(self.choose, self.clamp, self.number, self.join, self.pad),
            ]
        )
        step(x)

    def compute(self, x: Value) -> None:
        opcode = self.dice.choice((*UNARY, *BINARY, *BINARY))
        if self.dice.random() < 0.3:
            self.convert(x)
            return
        if (opcode in INTEGRAL and not x.kind.is_integer) or x.kind is P.PRED:
            return
        arity = 1 if opcode in UNARY else 2
        if has_operation(ElementSignature(opcode, (x.kind,) * arity, x.kind, NO_ATTRS)):
            operands = [x, *(self.like(x) for _ in range(arity - 1))]
            self.dice.shuffle(operands)
            self.add(x.kind, x.dims, f"{opcode}({', '.join(y.name for y in operands)})")

    def convert(self, x: Value) -> None:
        kind = self.dice.choice(KINDS)
        widths = {x.kind.byte_size, kind.byte_size}
        if self.dice.random() < 0.5 and len(widths) == 1 and P.PRED not in (x.kind, kind):
            self.add(kind, x.dims, f"bitcast-convert({x.name})")
        else:
            self.add(kind, x.dims, f"convert({x.name})")

    def clamp(self, x: Value) -> None:
        """Add a clamp between bounds of all sizes, or scalars."""
        if has_operation(ElementSignature(Opcode.CLAMP, (x.kind,) * 3, x.kind, NO_ATTRS)):
            low, high = self.like(x), self.like(x)
            if self.dice.random() < 0.5:
                low, high = (self.add(x.kind, (), f"constant({n})") for n in (1, 3))
            self.add(x.kind, x.dims, f"clamp({low.name}, {x.name}, {high.name})")

    def like(self, x: Value) -> Value:
        """Something of the kind and sizes of ``x``, from what there is."""
        same = [y for y in self.values if (y.kind, y.dims) == (x.kind, x.dims)]
        if self.dice.random() < 0.7:
            return self.dice.choice(same)
        number = 1 if x.kind is P.PRED else self.dice.randrange(1, 5)
        scalar = self.add(x.kind, (), f"constant({number})")
        return self.add(x.kind, x.dims, f"broadcast({scalar.name}), dimensions={{}}")

    def choose(self, x: Value) -> None:
        y = self.like(x)
        direction = self.dice.choice(("LT", "EQ", "NE", "GE"))
        attrs = CompareAttrs(direction)
        if not has_operation(ElementSignature(Opcode.COMPARE, (x.kind,) * 2, P.PRED, attrs)):
            return
        chosen = self.add(P.PRED, x.dims, f"compare({x.name}, {y.name}), direction={direction}")
        self.add(x.kind, x.dims, f"select({chosen.name}, {y.name}, {x.name})")

    def number(self, x: Value) -> None:
        if x.dims and x.kind is not P.PRED:
            along = self.dice.randrange(len(x.dims))
            i = self.add(x.kind, x.dims, f"iota(), iota_dimension={along}")
            self.add(x.kind, x.dims, f"add({x.name}, {i.name})")

    def rearrange(self, x: Value) -> None:
        kind = self.dice.choice(
            ("transpose", "reverse", "slice", "reshape", "broadcast", "dynamic-slice")
        )
        if kind == "dynamic-slice":
            self.slice_dynamically(x)
            return
        dims, text = rearranged(self.dice, kind, x)
        self.add(x.kind, dims, text)

    def join(self, x: Value) -> None:
        """Add a concatenation with values of the same sizes, or parts of them."""
        if not x.dims:
            return
        along = self.dice.randrange(len(x.dims))
        parts = [x, *(self.like(x) for _ in range(self.dice.choice((1, 1, 2))))]
        if x.dims[along] > 1 and self.dice.random() < 0.5:
            cuts = ", ".join(f"[{int(d == along)}:{n}]" for d, n in enumerate(x.dims))
            dims = tuple(n - (d == along) for d, n in enumerate(x.dims))
            parts.append(self.add(x.kind, dims, f"slice({x.name}), slice={{{cuts}}}"))
        self.dice.shuffle(parts)
        size = sum(part.dims[along] for part in parts)
        dims = tuple(size if d == along else n for d, n in enumerate(x.dims))
        names = ", ".join(part.name for part in parts)
        self.add(x.kind, dims, f"concatenate({names}), dimensions={{{along}}}")

    def pad(self, x: Value) -> None:
        """Add a pad by some elements, or by a negative number of them."""
        edges = [(self.dice.choice((0, 0, 1, 3, -1)), self.dice.choice((0, 0, 2))) for _ in x.dims]
        dims = tuple(n + low + high for n, (low, high) in zip(x.dims, edges, strict=True))
        if not x.dims or min(dims) < 1:
            return
        value = self.add(x.kind, (), f"constant({1 if x.kind is P.PRED else 3})")
        padding = "x".join(f"{low}_{high}" for low, high in edges)
        self.add(x.kind, dims, f"pad({x.name}, {value.name}), padding={padding}")

    def slice_dynamically(self, x: Value) -> None:
        """Add a dynamic slice from a number that is a parameter or computed from one, inside the array or not."""
        starts = []
        for _ in x.dims:
            start = self.dice.choice(self.starts)
            if self.dice.random() < 0.2:
                start = self.looked_up(start)
            if self.dice.random() < 0.3:
                start = self.add(start.kind, (), f"add({start.name}, {start.name})")
                self.values.pop()
            starts.append(start.name)
        dims = tuple(self.dice.randrange(n + 1) or n for n in x.dims)
        sizes = ",".join(map(str, dims))
        names = ", ".join((x.name, *starts))
        self.add(x.kind, dims, f"dynamic-slice({names}), dynamic_slice_sizes={{{sizes}}}")

    def looked_up(self, start: Value) -> Value:
        """A start that is itself read at a start."""
        table = next((v for v in self.values if v.dims and v.kind.is_integer), None)
        if table is None or 0 in table.dims or table.kind is P.U64:
            return start
        ones = ",".join("1" for _ in table.dims)
        names = ", ".join((table.name, *(start.name for _ in table.dims)))
        text = f"dynamic-slice({names}), dynamic_slice_sizes={{{ones}}}"
        one = self.add(table.kind, (1,) * len(table.dims), text)
        scalar = self.add(table.kind, (), f"reshape({one.name})")
        del self.values[-2:]
        return scalar


def rearranged(dice: random.Random, kind: str, x: Value) -> tuple[tuple[int, ...], str]:
    """Sizes and text of a random view of ``x``."""
    rank = range(len(x.dims))
    if kind == "transpose":
        order = dice.sample(rank, len(rank))
        dims = tuple(x.dims[d] for d in order)
        return dims, f"transpose({x.name}), dimensions={{{','.join(map(str, order))}}}"
    if kind == "reverse":
        chosen = [d for d in rank if dice.random() < 0.5]
        return x.dims, f"reverse({x.name}), dimensions={{{','.join(map(str, chosen))}}}"
    if kind == "slice":
        cuts = []
        for size in x.dims:
            start = dice.randrange(size) if size and dice.random() < 0.5 else 0
            cuts.append((start, size, dice.choice((1, 1, 2))))
        dims = tuple(max(0, -(-(limit - start) // step)) for start, limit, step in cuts)
        text = ", ".join(f"[{start}:{limit}:{step}]" for start, limit, step in cuts)
        return dims, f"slice({x.name}), slice={{{text}}}"
    if kind == "broadcast":
        places = [dice.randrange(len(rank) + 1) for _ in range(len(rank) < 4)]
        dims = list(x.dims)
        mapped = list(rank)
        for place in places:
            dims.insert(place, dice.choice(SIZES))
            mapped = [d + (d >= place) for d in mapped]
        return tuple(dims), f"broadcast({x.name}), dimensions={{{','.join(map(str, mapped))}}}"
    dims = factors(dice, math.prod(x.dims))
    return dims, f"reshape({x.name})"


def factors(dice: random.Random, count: int) -> tuple[int, ...]:
    """Random sizes of ``count`` elements."""
    dims: list[int] = []
    while count > 1 and len(dims) < 3:
        divisors = [n for n in range(2, count + 1) if count % n == 0]
        dims.append(dice.choice(divisors))
        count //= dims[-1]
    if count != 1 or dice.random() < 0.2:
        dims.insert(dice.randrange(len(dims) + 1), count)
    return tuple(dims)


def random_fusion(seed: int) -> str:
    """The text of a module whose entry is one fusion of views of its parameters."""
    dice = random.Random(seed)
    fused = Fused(dice)
    entry = []
    operands = []
    for number in range(dice.randrange(1, 4)):
        dims = tuple(dice.choice(SIZES) for _ in range(dice.randrange(0, 4)))
        if dice.random() < 0.03:
            dims = (*dims, 0)
        source = Value(f"p{number}", dice.choice(KINDS), dims)
        entry.append(f"{source.name} = {source} parameter({number})")
        seen = source
        if dice.random() < 0.6:
            kind = dice.choice(("transpose", "reverse", "slice", "broadcast"))
            dims, text = rearranged(dice, kind, source)
            seen = Value(f"q{number}", source.kind, dims)
            entry.append(f"{seen.name} = {seen} {text}")
        fused.add(seen.kind, seen.dims, f"parameter({number})")
        operands.append(seen)
    start_kind = dice.choice((P.S32, P.S8, P.U32, P.S64))
    for number in range(len(operands), len(operands) + 2):
        start = Value(f"p{number}", start_kind, ())
        entry.append(f"{start.name} = {start} parameter({number})")
        fused.starts.append(fused.add(start.kind, start.dims, f"parameter({number})"))
        operands.append(start)
    fused.values = fused.values[:-2]
    parameters = len(fused.lines)
    for _ in range(dice.randrange(1, 9)):
        fused.grow()
    while len(fused.lines) == parameters:
        fused.grow()
    last = fused.values[-1]
    fits = [v for v in fused.values if math.prod(v.dims) == math.prod(last.dims)]
    results = [last, *dice.sample(fits, min(len(fits), dice.choice((0, 0, 1, 2))))]
    if len(results) == 1:
        fused.lines[-1] = f"ROOT {fused.lines[-1]}"
        shape = str(last)
    else:
        shape = f"({', '.join(map(str, results))})"
        names = ", ".join(v.name for v in results)
        fused.lines.append(f"ROOT t = {shape} tuple({names})")
    names = ", ".join(x.name for x in operands)
    entry.append(f"ROOT f = {shape} fusion({names}), kind=kLoop, calls=fused")
    return "\n".join(
        [
            "HloModule m\n\nfused {",
            *(f"  {line}" for line in fused.lines),
            "}\n\nENTRY e {",
            *(f"  {line}" for line in entry),
            "}\n",
        ]
    )
