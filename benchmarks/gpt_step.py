"""A transformer's training step as a logical module with GSPMD annotations, of any depth and mesh, made here.

Forward, backward and Adam of ``layers`` unrolled blocks (attention and a two-matrix MLP, RMS norms, residuals), token
ids to cross entropy. Axes of the mesh: data and fsdp split the batch, fsdp and model the weights, model the heads and
the sequence between blocks. It is what benchmarks partition where no recorded module has the size they ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spmd.builder import Builder
from spmd.device import IotaTile, ReductionKind
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import CustomCallAttrs, DotAttrs
from spmd.shape import ArrayShape, PrimitiveType
from spmd.sharding import HloSharding, SubgroupType, TileAssignment

F32, S32 = PrimitiveType.F32, PrimitiveType.S32
DATA, FSDP, MODEL = 0, 1, 2
#: Axes of the mesh that split one dimension.
Split = tuple[int, ...]


@dataclass(frozen=True)
class GptSizes:
    """Sizes of the model; all dimensions that a mesh of (data, fsdp, model) splits are divided by it."""

    mesh: tuple[int, int, int] = (2, 2, 2)
    layers: int = 12
    batch: int = 8
    sequence: int = 32
    heads: int = 8
    head: int = 32
    hidden: int = 1024
    vocabulary: int = 512

    @staticmethod
    def for_mesh(mesh: tuple[int, int, int], layers: int = 12) -> GptSizes:
        """The sizes for (2, 2, 2), enlarged as the axes that split them are."""
        data, fsdp, model = (size // 2 for size in mesh)
        return GptSizes(
            mesh,
            layers,
            batch=8 * data * fsdp,
            sequence=32 * model,
            heads=8 * model * fsdp,
            hidden=1024 * model * fsdp,
            vocabulary=512 * model * fsdp,
        )

    @property
    def devices(self) -> int:
        data, fsdp, model = self.mesh
        return data * fsdp * model

    @property
    def width(self) -> int:
        return self.heads * self.head


class Tape:
    """Forward ops that remember how to go back. ``gradients`` of a value are summed where it has several users."""

    def __init__(self, b: Builder, mesh: tuple[int, int, int]) -> None:
        self.b = b
        self.mesh = mesh
        self.gradients: dict[HloInstruction, HloInstruction] = {}
        self._back: list[Callable[[], None]] = []

    def backward(self) -> None:
        for step in reversed(self._back):
            step()

    def give(self, x: HloInstruction, gradient: HloInstruction) -> None:
        known = self.gradients.get(x)
        self.gradients[x] = gradient if known is None else self.b.add(known, gradient)

    # ---- sharding
    def sharding(self, splits: Sequence[Split]) -> HloSharding:
        used = [axis for split in splits for axis in split]
        rest = [axis for axis in (DATA, FSDP, MODEL) if axis not in used]
        if not used:
            return HloSharding.replicated()
        tile = [1] * len(splits)
        for dim, split in enumerate(splits):
            for axis in split:
                tile[dim] *= self.mesh[axis]
        kinds: tuple[SubgroupType, ...] = ()
        if rest:
            copies = 1
            for axis in rest:
                copies *= self.mesh[axis]
            tile.append(copies)
            kinds = (SubgroupType.REPLICATED,)
        iota = IotaTile(tuple(tile), self.mesh, (*used, *rest))
        return HloSharding.tiled(TileAssignment(iota), kinds)

    def constrain(self, x: HloInstruction, splits: Sequence[Split]) -> HloInstruction:
        """``x`` annotated, and its gradient likewise."""
        result = self._annotate(x, splits)
        self._back.append(lambda: self.give(x, self._annotate(self.gradients[result], splits)))
        return result

    def _annotate(self, x: HloInstruction, splits: Sequence[Split]) -> HloInstruction:
        call = self.b.create(
            Opcode.CUSTOM_CALL, (x,), CustomCallAttrs("Sharding"), shape=x.array_shape
        )
        call.sharding = self.sharding(splits)
        return call

    # ---- ops
    def linear(self, x: HloInstruction, w: HloInstruction) -> HloInstruction:
        """[..., k] x [k, n] -> [..., n]."""
        b, last = self.b, len(x.dims) - 1
        y = b.dot(x, w, DotAttrs((last,), (0,)))
        outer = tuple(range(last))

        def back() -> None:
            dy = self.gradients[y]
            self.give(x, b.dot(dy, w, DotAttrs((last,), (1,))))
            self.give(w, b.dot(x, dy, DotAttrs(outer, outer)))

        self._back.append(back)
        return y

    def add(self, x: HloInstruction, y: HloInstruction) -> HloInstruction:
        z = self.b.add(x, y)

        def back() -> None:
            self.give(x, self.gradients[z])
            self.give(y, self.gradients[z])

        self._back.append(back)
        return z

    def norm(self, x: HloInstruction, gain: HloInstruction) -> HloInstruction:
        """RMS norm over the last dimension."""
        b, last = self.b, len(x.dims) - 1
        outer = tuple(range(last))
        mean = self._mean(b.multiply(x, x))
        eps = b.broadcast_scalar(b.scalar(F32, 1e-6), mean.dims)
        scale = b.broadcast(b.unary(Opcode.RSQRT, b.add(mean, eps)), outer, x.dims)
        unit = b.multiply(x, scale)
        wide = b.broadcast(gain, (last,), x.dims)
        y = b.multiply(unit, wide)

        def back() -> None:
            dy = self.gradients[y]
            self.give(gain, b.reduce(b.multiply(dy, unit), outer, ReductionKind.SUM))
            du = b.multiply(dy, wide)
            along = b.broadcast(self._mean(b.multiply(du, unit)), outer, x.dims)
            self.give(x, b.multiply(scale, b.subtract(du, b.multiply(unit, along))))

        self._back.append(back)
        return y

    def _mean(self, x: HloInstruction) -> HloInstruction:
        b, last = self.b, len(x.dims) - 1
        total = b.reduce(x, (last,), ReductionKind.SUM)
        return b.multiply(total, b.broadcast_scalar(b.scalar(F32, 1 / x.dims[last]), total.dims))

    def swish(self, x: HloInstruction) -> HloInstruction:
        b = self.b
        gate = b.unary(Opcode.LOGISTIC, x)
        y = b.multiply(x, gate)

        def back() -> None:
            one = b.broadcast_scalar(b.scalar(F32, 1), x.dims)
            slope = b.add(gate, b.multiply(y, b.subtract(one, gate)))
            self.give(x, b.multiply(self.gradients[y], slope))

        self._back.append(back)
        return y

    def split_heads(self, x: HloInstruction, heads: int) -> HloInstruction:
        """[batch, sequence, width] -> [batch, heads, sequence, head]."""
        b, (batch, sequence, width) = self.b, x.dims
        y = b.transpose(b.reshape(x, (batch, sequence, heads, width // heads)), (0, 2, 1, 3))

        def back() -> None:
            turned = b.transpose(self.gradients[y], (0, 2, 1, 3))
            self.give(x, b.reshape(turned, x.dims))

        self._back.append(back)
        return y

    def join_heads(self, x: HloInstruction) -> HloInstruction:
        b, (batch, heads, sequence, head) = self.b, x.dims
        y = b.reshape(b.transpose(x, (0, 2, 1, 3)), (batch, sequence, heads * head))

        def back() -> None:
            apart = b.reshape(self.gradients[y], (batch, sequence, heads, head))
            self.give(x, b.transpose(apart, (0, 2, 1, 3)))

        self._back.append(back)
        return y

    def attention(self, q: HloInstruction, k: HloInstruction, v: HloInstruction) -> HloInstruction:
        """softmax(q k^T / sqrt(head)) v over [batch, heads, sequence, head]."""
        b = self.b

        def product(x: HloInstruction, y: HloInstruction, left: int, right: int) -> HloInstruction:
            return b.dot(x, y, DotAttrs((left,), (right,), (0, 1), (0, 1)))

        scores = product(q, k, 3, 3)
        scale = b.broadcast_scalar(b.scalar(F32, q.dims[3] ** -0.5), scores.dims)
        p = self._softmax(b.multiply(scores, scale))
        y = product(p, v, 3, 2)

        def back() -> None:
            dy = self.gradients[y]
            self.give(v, product(p, dy, 2, 2))
            dp = product(dy, v, 3, 3)
            along = b.reduce(b.multiply(dp, p), (3,), ReductionKind.SUM)
            inner = b.subtract(dp, b.broadcast(along, (0, 1, 2), dp.dims))
            ds = b.multiply(b.multiply(p, inner), scale)
            self.give(q, product(ds, k, 3, 2))
            self.give(k, product(ds, q, 2, 2))

        self._back.append(back)
        return y

    def _softmax(self, x: HloInstruction) -> HloInstruction:
        b, last = self.b, len(x.dims) - 1
        outer = tuple(range(last))
        top = b.broadcast(b.reduce(x, (last,), ReductionKind.MAX), outer, x.dims)
        e = b.unary(Opcode.EXPONENTIAL, b.subtract(x, top))
        total = b.broadcast(b.reduce(e, (last,), ReductionKind.SUM), outer, x.dims)
        return b.divide(e, total)

    def cross_entropy(self, logits: HloInstruction, wanted: HloInstruction) -> HloInstruction:
        """f32[]: mean of -log softmax at ``wanted`` (one-hot); its gradient is given to ``logits``."""
        b = self.b
        p = self._softmax(logits)
        count = logits.dims[0] * logits.dims[1]
        share = b.scalar(F32, 1 / count)
        picked = b.reduce(b.multiply(p, wanted), (2,), ReductionKind.SUM)
        loss = b.reduce(b.unary(Opcode.LOG, picked), (0, 1), ReductionKind.SUM)
        self.give(logits, b.multiply(b.subtract(p, wanted), b.broadcast_scalar(share, logits.dims)))
        return b.multiply(b.negate(loss), share)


class GptStep:
    """Builds one step: parameters are ids, then for each weight its value and Adam's two moments."""

    def __init__(self, sizes: GptSizes) -> None:
        self.sizes = sizes
        self.module = HloModule(f"gpt{sizes.layers}")
        self.module.entry = self.module.new_computation("main")
        self.b = Builder(self.module.entry)
        self.tape = Tape(self.b, sizes.mesh)
        self.weights: list[tuple[HloInstruction, HloInstruction, HloInstruction]] = []
        self._parameters = 0

    def build(self) -> HloModule:
        s, tape = self.sizes, self.tape
        batch: Split = (DATA, FSDP)
        ids = self._parameter(ArrayShape(S32, (s.batch, s.sequence)), (batch, ()), "ids")
        onehot = self._one_hot(ids)
        embedding = self._weight((s.vocabulary, s.width), ((MODEL,), (FSDP,)), "embedding")
        x = tape.constrain(tape.linear(onehot, embedding), (batch, (MODEL,), ()))
        for layer in range(s.layers):
            x = self._block(x, f"layer{layer}")
        x = tape.norm(x, self._weight((s.width,), ((),), "gain"))
        head = self._weight((s.width, s.vocabulary), ((FSDP,), (MODEL,)), "head")
        loss = tape.cross_entropy(tape.linear(x, head), onehot)
        tape.backward()
        self.module.entry.root = self.b.tuple([loss, *self._updates()])
        self.module.num_partitions = s.devices
        self.module.states_partitions = True
        return self.module

    def _block(self, x: HloInstruction, name: str) -> HloInstruction:
        s, tape = self.sizes, self.tape
        batch: Split = (DATA, FSDP)
        into, out = ((FSDP,), (MODEL,)), ((MODEL,), (FSDP,))
        square = (s.width, s.width)
        h = tape.norm(x, self._weight((s.width,), ((),), f"{name}.gain1"))
        q, k, v = (
            tape.split_heads(tape.linear(h, self._weight(square, into, f"{name}.{part}")), s.heads)
            for part in ("query", "key", "value")
        )
        attended = tape.join_heads(
            tape.constrain(tape.attention(q, k, v), (batch, (MODEL,), (), ()))
        )
        a = tape.linear(attended, self._weight(square, out, f"{name}.project"))
        x = tape.add(x, tape.constrain(a, (batch, (MODEL,), ())))
        h = tape.norm(x, self._weight((s.width,), ((),), f"{name}.gain2"))
        up = tape.linear(h, self._weight((s.width, s.hidden), into, f"{name}.up"))
        h = tape.swish(tape.constrain(up, (batch, (), (MODEL,))))
        down = tape.linear(h, self._weight((s.hidden, s.width), out, f"{name}.down"))
        return tape.add(x, tape.constrain(down, (batch, (MODEL,), ())))

    def _one_hot(self, ids: HloInstruction) -> HloInstruction:
        b, dims = self.b, (*ids.dims, self.sizes.vocabulary)
        same = b.compare(b.broadcast(ids, (0, 1), dims), b.iota(S32, dims, 2), "EQ")
        return b.convert(same, F32)

    def _parameter(self, shape: ArrayShape, splits: Sequence[Split], name: str) -> HloInstruction:
        parameter = self.b.parameter(self._parameters, shape, name)
        parameter.sharding = self.tape.sharding(splits)
        self._parameters += 1
        return parameter

    def _weight(self, dims: tuple[int, ...], splits: Sequence[Split], name: str) -> HloInstruction:
        shape = ArrayShape(F32, dims)
        weight, first, second = (
            self._parameter(shape, splits, f"{name}{suffix}") for suffix in ("", ".m", ".v")
        )
        self.weights.append((weight, first, second))
        return weight

    def _updates(self) -> list[HloInstruction]:
        """Adam without bias correction: new value and moments of each weight, sharded as before."""
        b = self.b
        found: list[HloInstruction] = []
        for weight, first, second in self.weights:
            g = self.tape.gradients[weight]

            def scaled(x: HloInstruction, factor: float) -> HloInstruction:
                return b.multiply(x, b.broadcast_scalar(b.scalar(F32, factor), x.dims))

            m = b.add(scaled(first, 0.9), scaled(g, 0.1))
            v = b.add(scaled(second, 0.999), scaled(b.multiply(g, g), 0.001))
            eps = b.broadcast_scalar(b.scalar(F32, 1e-8), weight.dims)
            step = b.divide(m, b.add(b.unary(Opcode.SQRT, v), eps))
            found += [b.subtract(weight, scaled(step, 1e-3)), m, v]
        for value, (weight, _, _) in zip(found[::3], self.weights, strict=True):
            value.sharding = weight.sharding
        return found


def gpt_step(sizes: GptSizes) -> HloModule:
    """The step's module (stage LOGICAL) for ``sizes.devices`` devices."""
    return GptStep(sizes).build()
