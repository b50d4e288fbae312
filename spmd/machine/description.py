"""MachineDescription: rates of one device, as plain numbers. Its ``source`` states their origin.

Every rate is of one *device*, in the sense of a compilation: a core of a CPU, an entire GPU. Units are seconds, bytes,
and operations per second throughout.
"""

from __future__ import annotations

import bisect
import hashlib
import math
from dataclasses import replace

from spmd.analysis.attention_cost import AttentionShape
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.machine.attention import FusedAttentionRates
from spmd.machine.convolutions import ConvolutionAlgorithm, ConvolutionClass, ConvolutionParts
from spmd.machine.exchange import Exchange
from spmd.machine.products import ProductClass, Transposed, class_for
from spmd.machine.tiles import TiledProducts
from spmd.shape import (
    HOST_MEMORY,
    ArrayShape,
    BufferShape,
    PrimitiveType,
    Shape,
    TupleShape,
)


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """A cache or the memory.

    size: bytes that it holds.
    bandwidth: bytes per second, read and written together, of a loop whose arrays fit into this level, while all
      devices do the same.
    kernel_local: it holds only data that a kernel has read or computed itself, and none from earlier kernels.
    """

    name: str
    size: int
    bandwidth: float
    kernel_local: bool = False


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates for one element type, per second.

    matrix: floating-point operations of a large matrix product.
    attained: fraction of ``matrix`` that large products reach, or that tiles which occupy all processors reach if the
      machine's products are ``tiled``; 0: the machine's ``attained.matrix``.
    attention: floating-point operations of fused attention; 0: those of ``matrix``.
    source: where ``attained`` comes from, and whether it was measured in bursts or at sustained power.
    simple: additions of elements in registers or the nearest cache.
    transcendental: evaluations of exp.
    functions: evaluations of other operations, where they were measured.
    """

    matrix: float
    simple: float
    transcendental: float
    functions: tuple[tuple[Opcode, float], ...] = ()
    attained: float = 0.0
    attention: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Attained:
    """Fractions of published rates that programs reach.

    matrix: of ``Rates.matrix``, by large products of types without a fraction of their own.
    memory: of the last level's bandwidth, by streams.
    attention: of ``Rates.matrix``, by fused attention.
    """

    matrix: float = 1.0
    memory: float = 1.0
    attention: float = 1.0


@dataclass(frozen=True, repr=False)
class MachineDescription:
    """Description of a machine for cost models. Rates are as published or measured; ``attained`` is the fraction that
    programs reach.

    units: processors of one device that share a kernel's work (a GPU's multiprocessors; 1 for a core).
    levels: memory levels, the nearest cache first and memory last, in order of size.
    rates: by element type; f32 is always present. They apply to products and convolutions without a class.
    kernel_seconds: to begin and end a kernel's loops.
    row_seconds: to begin a row, i.e. one run of the innermost loop.
    thunk_seconds: to dispatch one thunk.
    exchanges: the narrowest group of devices first.
    products: classes by size and type, the most specific first.
    fused_attention: rates of a GPU library's fused attention; None: ``attained.attention`` of products' rates.
    tiled: how a GPU's library cuts products into tiles; None: products without a class attain their rate at any size.
    convolutions: classes by algorithm and type.
    program_bytes: memory that programs may use; 0 for all of it.
    host_bandwidth: bytes per second in each direction between a device's memory and its host's; 0 if they are one
      memory.
    spread: standard deviation of the rates of products among devices of this description, as a fraction of the mean.
    step_seconds, output_seconds: to begin and end a step, and to return one array of one device.
    wait_seconds: of a wait for the slower device, 1 ms after the last one. It grows with the square root of that time.
    """

    name: str
    kind: str
    source: str
    units: int
    levels: tuple[MemoryLevel, ...]
    rates: tuple[tuple[PrimitiveType, Rates], ...]
    kernel_seconds: float
    row_seconds: float
    thunk_seconds: float
    exchanges: tuple[Exchange, ...] = ()
    products: tuple[ProductClass, ...] = ()
    tiled: TiledProducts | None = None
    fused_attention: FusedAttentionRates | None = None
    convolutions: tuple[ConvolutionClass, ...] = ()
    attained: Attained = Attained()
    program_bytes: int = 0
    host_bandwidth: float = 0.0
    spread: float = 0.0
    step_seconds: float = 0.0
    output_seconds: float = 0.0
    wait_seconds: float = 0.0

    @property
    def memory_limit(self) -> int:
        """The bytes of a device that a program may use."""
        return self.program_bytes or self.levels[-1].size

    def byte_size(self, shape: Shape) -> int:
        """Return the bytes of ``shape`` in memory. On a GPU elements of four bits and less stand packed."""
        return _packed_byte_size(shape) if self.is_gpu else shape.byte_size

    def memory_bytes(self, leaf: Shape) -> int:
        """Return the bytes of a device's memory that an array takes: none if it is in the host's memory."""
        on_host = isinstance(leaf, ArrayShape) and leaf.memory_space == HOST_MEMORY
        return 0 if on_host and self.host_bandwidth else self.byte_size(leaf)

    @property
    def is_gpu(self) -> bool:
        """Return whether the devices are GPUs, whose matrix products a library computes."""
        return self.kind == "gpu"

    @property
    def overlaps(self) -> bool:
        """Return whether devices compute while bytes move over some exchange."""
        return any(way.busy < 1.0 for way in self.exchanges)

    @property
    def busy(self) -> dict[str, float]:
        """The share of the processors that each exchange takes from computing while in use."""
        return {way.name: way.busy for way in self.exchanges}

    def as_attained(self) -> MachineDescription:
        """Return the same machine with the rates that programs reach."""
        *caches, memory = self.levels
        seen = self.attained
        return replace(
            self,
            levels=(*caches, replace(memory, bandwidth=memory.bandwidth * seen.memory)),
            rates=tuple(
                (
                    kind,
                    replace(
                        rates,
                        matrix=rates.matrix * (rates.attained or seen.matrix),
                        attained=1.0,
                        attention=rates.attention or rates.matrix * seen.attention,
                    ),
                )
                for kind, rates in self.rates
            ),
            exchanges=tuple(
                replace(way, bandwidth=way.bandwidth * way.attained, attained=1.0)
                for way in self.exchanges
            ),
            attained=Attained(),
        )

    def with_links(self, factor: float) -> MachineDescription:
        """Return the machine with all links ``factor`` times as fast and unchanged latencies, named
        ``NAME{links=FACTOR}``.
        """
        return replace(
            self,
            name=varied_name(self.name, f"links={factor:g}"),
            exchanges=tuple(way.times(factor) for way in self.exchanges),
        )

    def with_nodes(self, devices: int) -> MachineDescription:
        """Return the machine with nodes (groups of the narrowest exchange) of ``devices`` devices, named
        ``NAME{node=DEVICES}``. Wider groups contain as many of them as fit.
        """
        if not self.exchanges:
            return self
        node, *wider = self.exchanges
        return replace(
            self,
            name=varied_name(self.name, f"node={devices}"),
            exchanges=(
                replace(node, devices=devices),
                *(
                    replace(way, devices=devices * (way.devices // devices))
                    for way in wider
                    if way.devices > devices
                ),
            ),
        )

    def rates_of(self, kind: PrimitiveType) -> Rates:
        """Return the rates of ``kind``; if it is not described, those of the type in which it computes or of the most
        similar one.
        """
        table = dict(self.rates)
        for candidate in (kind, *_LIKE.get(kind, ()), PrimitiveType.F32):
            if candidate in table:
                return table[candidate]
        raise AssertionError("f32 is described: the reader demands it")

    def level_for(self, working_set: float, *, same_kernel: bool = False) -> MemoryLevel:
        """Return the nearest level that holds so many bytes; memory if none does.

        same_kernel: the bytes are reused within one kernel, so kernel-local levels count too.
        """
        levels = self.levels if same_kernel else self.shared_levels
        return next((level for level in levels if working_set <= level.size), levels[-1])

    @property
    def shared_levels(self) -> tuple[MemoryLevel, ...]:
        """The levels that hold data read or written by earlier kernels; the memory is one."""
        return tuple(level for level in self.levels if not level.kernel_local)

    def start_seconds(self, loops: float = 1, rows: float = 0) -> float:
        """Return the seconds to dispatch a kernel and to begin its ``loops`` and their ``rows``."""
        return self.thunk_seconds + loops * self.kernel_seconds + rows * self.row_seconds

    def byte_seconds(self, distance: float) -> float:
        """Return the seconds to read or write a byte that was last touched ``distance`` bytes ago."""
        return byte_seconds(self.shared_levels, distance)

    def product_rate(self, kind: PrimitiveType, *, tf32: bool = True) -> float:
        """Return the flops per second of large products of ``kind``.

        tf32: f32 operands may be rounded to TF32, for which a GPU's f32 rate is stated; otherwise its vector units
        multiply them.
        """
        rates = self.rates_of(kind)
        if self.is_gpu and kind is PrimitiveType.F32 and not tf32:
            return min(rates.matrix, 2 * rates.simple)  # a multiplication and an addition at once
        return rates.matrix

    def attention_rate(
        self, kind: PrimitiveType, shape: AttentionShape, *, tf32: bool = True
    ) -> float:
        """Return the flops per second of fused attention of ``kind``, whose rate includes its exponentials.

        A type that was not measured has bf16's rate times the ratio of the rates of their products.
        """
        rates, table = self.rates_of(kind), self.fused_attention
        rate = self.product_rate(kind, tf32=tf32)
        if table is None:
            return rate * (rates.attention / rates.matrix if rates.attention else 1.0)
        measured = table.rate(kind, shape)
        if measured is not None:
            return measured
        bf16 = table.rate(PrimitiveType.BF16, shape)
        assert bf16 is not None, "the reader demands it"
        return bf16 * rate / self.rates_of(PrimitiveType.BF16).matrix

    def product_seconds(
        self,
        types: tuple[PrimitiveType, PrimitiveType, PrimitiveType],
        sizes: tuple[int, int, int],
        transposed: Transposed = (False, False),
        *,
        tf32: bool = True,
    ) -> float:
        """Return the seconds of one product of matrices of sizes m, k and n whose operands and result are in the
        nearest level.

        If no class covers it, the cost is its flops and the packing of its operands, which reads and writes them.
        """
        known = class_for(self.products, types, sizes)
        if known is not None:
            return known.seconds(*sizes, transposed)
        m, k, n = map(float, sizes)
        packed = 2 * (m * k * types[0].byte_size + k * n * types[1].byte_size)
        rate = self.product_rate(types[0], tf32=tf32)
        return 2 * m * k * n / rate + packed * self.byte_seconds(packed)

    def convolution_class(
        self, kind: PrimitiveType, algorithm: ConvolutionAlgorithm
    ) -> ConvolutionClass | None:
        found = (one for one in self.convolutions if (one.algorithm, one.kind) == (algorithm, kind))
        return next(found, None)

    def convolution_seconds(self, kind: PrimitiveType, parts: ConvolutionParts) -> float:
        """Return the seconds of one convolution of elements of ``kind`` whose operands and result are in the nearest
        level."""
        known = self.convolution_class(kind, parts.algorithm)
        if known is not None:
            return known.seconds(parts)
        moved = kind.byte_size * (2 * parts.inputs + 2 * parts.kernels + parts.results)
        flops = 2 * parts.multiplications
        return flops / self.rates_of(kind).matrix + moved * self.byte_seconds(moved)

    @property
    def digest(self) -> str:
        """The digest of every field on which a compilation may depend."""
        return hashlib.sha256(_content(self).encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        """Return a short form, since it is part of the options that all ranks compare; the digest tells descriptions
        apart.
        """
        return f"{self.name}:{self.digest}"


def _packed_byte_size(shape: Shape) -> int:
    """Return the bytes of ``shape`` if elements of four bits and less stand packed, as XLA stores them on GPUs."""
    if isinstance(shape, ArrayShape):
        return -(-shape.num_elements * shape.element_type.packed_bits // 8)
    if isinstance(shape, TupleShape):
        return sum(map(_packed_byte_size, shape.elements))
    return _packed_byte_size(shape.array) if isinstance(shape, BufferShape) else 0


def varied_name(name: str, what: str) -> str:
    """Return ``name`` with one more variation: ``m``, ``m{links=0.5}``, ``m{links=0.5,node=2}``."""
    return f"{name[:-1]},{what}}}" if name.endswith("}") else f"{name}{{{what}}}"


def byte_seconds(levels: tuple[MemoryLevel, ...], distance: float) -> float:
    """Return the seconds to read a byte that was last touched ``distance`` bytes ago. Between the sizes of two levels
    they grow with the logarithm, because other data takes more and more of the nearer level.
    """
    sizes = [level.size for level in levels]
    n = bisect.bisect_left(sizes, distance)
    if n == 0 or n == len(sizes):
        return 1.0 / levels[min(n, len(sizes) - 1)].bandwidth
    inner, outer = levels[n - 1], levels[n]
    share = math.log(distance / inner.size) / math.log(outer.size / inner.size)
    return (1.0 - share) / inner.bandwidth + share / outer.bandwidth


def _content(machine: MachineDescription) -> str:
    return repr(
        (
            machine.kind,
            machine.units,
            machine.levels,
            [(kind.value, rates) for kind, rates in machine.rates],
            machine.kernel_seconds,
            machine.row_seconds,
            machine.thunk_seconds,
            machine.exchanges,
            machine.products,
            machine.tiled,
            machine.fused_attention,
            machine.convolutions,
            machine.attained,
            machine.program_bytes,
            machine.host_bandwidth,
            machine.spread,
            machine.step_seconds,
            machine.output_seconds,
            machine.wait_seconds,
        )
    )


_T = PrimitiveType
#: Substitutes for a type without rates: the nearest type by width or by arithmetic.
_LIKE: dict[PrimitiveType, tuple[PrimitiveType, ...]] = {
    _T.F64: (_T.F32,),
    _T.C64: (_T.F32,),
    _T.C128: (_T.F64,),
    _T.S64: (_T.F64,),
    _T.U64: (_T.F64,),
    _T.S32: (_T.F32,),
    _T.U32: (_T.F32,),
    _T.F16: (_T.BF16,),
    _T.BF16: (_T.F16,),
    _T.F8E4M3FN: (_T.F8E5M2, _T.BF16),
    _T.F8E5M2: (_T.F8E4M3FN, _T.BF16),
    _T.F4E2M1FN: (_T.F8E4M3FN, _T.BF16),
    _T.S4: (_T.S8,),
    _T.U4: (_T.S8,),
    _T.U8: (_T.S8,),
    _T.PRED: (_T.S8,),
}
