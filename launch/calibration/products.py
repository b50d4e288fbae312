"""Products of matrices by type and classes of sizes: a few shapes of each are timed, and the class fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

from launch.calibration.memory import UNCACHED_BYTES, Arena
from launch.calibration.probes import CoreProbe, Seconds
from launch.calibration.timing import Action, in_turn
from runtime.cpu.kernels.gemm import tuning
from runtime.cpu.kernels.gemm.choose import plan_dot, unit_of
from runtime.cpu.kernels.gemm.tile_types import PANEL, TILE_TYPES, TileTypes, most_depth
from runtime.cpu.prediction.work import TIMED_BYTES
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.machine.bounds import MOST_SLOWDOWN
from spmd.machine.description import MemoryLevel, byte_seconds
from spmd.machine.fit import nonnegative_fit
from spmd.machine.products import ProductClass, Transposed, class_for
from spmd.shape import PrimitiveType

P = PrimitiveType
Types = tuple[PrimitiveType, PrimitiveType, PrimitiveType]
Sizes = tuple[int, int, int]

#: Sizes that no matrix has.
EVERYTHING = 1 << 23
TYPES: tuple[Types, ...] = (
    (P.F32, P.F32, P.F32),
    (P.BF16, P.BF16, P.BF16),
    (P.BF16, P.BF16, P.F32),
    (P.F32, P.BF16, P.F32),
    (P.BF16, P.F32, P.F32),
    (P.F64, P.F64, P.F64),
    (P.S8, P.S8, P.S32),
)


@dataclass(frozen=True)
class ProductShapes:
    """Shapes (m, k, n) that a cost class of products is fitted to.

    Except for the largest shapes, operands and results fit into a core's second-level cache, so that times do not
      include those of outer levels.

    least: smallest sizes of the class.
    blocks: block sizes, as in ``ProductClass``.
    transposed: shapes that are also measured with a transposed operand.
    """

    least: Sizes
    blocks: tuple[int, int]
    shapes: tuple[Sizes, ...]
    transposed: tuple[Sizes, ...]


CLASSES = (
    ProductShapes(  # so large that what is packed of them lies in caches, and neither they nor their results
        (128, 128, 1 << 27),
        (32, 32),
        (
            *((512, 512, 512), (256, 1024, 512), (1024, 256, 512), (256, 256, 2048)),
            *((512, 2048, 256), (768, 512, 768), (512, 1024, 1024)),
        ),
        ((512, 512, 512),),
    ),
    ProductShapes(
        astuple(tuning.TILE_THRESHOLDS),
        (32, 32),
        (
            *((128, 128, 128), (256, 256, 256), (32, 256, 256), (256, 32, 256), (256, 256, 32)),
            *((64, 512, 64), (64, 64, 512), (512, 64, 64), (256, 320, 128)),
            *(
                (384, 256, 512),
                (512, 512, 192),
                (192, 512, 512),
                (128, 1024, 128),
                (192, 1024, 192),
            ),
        ),
        ((256, 256, 32), (32, 256, 256), (256, 256, 256)),
    ),
    ProductShapes(
        (32, 1, 1),
        (16, 1),
        ((32, 32, 32), (64, 64, 64), (96, 96, 96), (32, 64, 256), (256, 8, 256)),
        ((64, 64, 64),),
    ),
    ProductShapes(
        (1, 1, 1),
        (1, 1),
        (
            *((1, 256, 512), (8, 256, 512), (16, 256, 256), (512, 256, 8), (256, 512, 16)),
            *((512, 8, 8), (1, 64, 64), (4, 4, 4)),
        ),
        ((16, 256, 256), (256, 512, 16)),
    ),
)


#: Shapes of the first class that are timed where operands and results are uncached: matrices that are far are large,
#: and their rows are long. One that is mostly lhs, one that is mostly rhs, one that is mostly result, and one of all.
UNCACHED = ((512, 1024, 64), (64, 256, 1024), (512, 64, 1024), (128, 512, 1024))


@dataclass(frozen=True)
class ProductOptions:
    """Options of the measurement of products.

    uncached_bytes: bytes that are touched between two uses of an uncached array: more than the last-level cache holds,
      so that copies are slower, too.
    budget: seconds of one round of a shape.
    """

    types: tuple[Types, ...] = TYPES
    classes: tuple[ProductShapes, ...] = CLASSES
    uncached: tuple[Sizes, ...] = UNCACHED
    uncached_bytes: int = UNCACHED_BYTES
    budget: float = 0.0035


@dataclass(frozen=True)
class ProductProbe(CoreProbe):
    """Products of sizes m, k, n, one after the other, each of ``count`` on arrays of its own."""

    types: Types
    sizes: Sizes
    transposed: Transposed = (False, False)
    count: int = 1

    @property
    def executions(self) -> int:
        return self.count

    def make(self, arena: Arena) -> Action:
        """Return the product as programs on this machine compute it."""
        kernel = plan_dot((), self.sizes, self.types)
        assert kernel is not None, "floats are summed, and bytes into s32"
        m, k, n = self.sizes
        scratch = tuple(arena.array(dims, kernel.compute.numpy) for dims in kernel.scratch_dims())
        actions = []
        for seed in range(self.count):
            lhs = _matrix(arena, (m, k), self.types[0], seed, transposed=self.transposed[0])
            rhs = _matrix(arena, (k, n), self.types[1], seed, transposed=self.transposed[1])
            out = arena.array((m, n), self.types[2].numpy)
            actions.append(CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out,), scratch)))
        return in_turn(actions)


def _matrix(
    arena: Arena, dims: tuple[int, int], kind: PrimitiveType, seed: int, *, transposed: bool
) -> NDArray:
    """Return a matrix stored by rows, or by columns if ``transposed``."""
    return (
        arena.numbers(dims[::-1], kind, seed).T if transposed else arena.numbers(dims, kind, seed)
    )


#: Memory orders of the operands; each operand is timed in both.
STRAIGHT: Transposed = (False, False)
TRANSPOSED: tuple[Transposed, ...] = ((True, False), (False, True))


def product_probes(types: Types, options: ProductOptions) -> tuple[ProductProbe, ...]:
    cached = [_cached(types, *one, options) for shapes in options.classes for one in _of(shapes)]
    uncached = [_uncached(types, *one, options) for one in _uncached_layouts(options)]
    return (*dict.fromkeys(cached), *uncached)


def _of(shapes: ProductShapes) -> list[tuple[Sizes, Transposed]]:
    """Return the products to which a class is fitted."""
    transposed = [(sizes, transposed) for sizes in shapes.transposed for transposed in TRANSPOSED]
    return [*((sizes, STRAIGHT) for sizes in shapes.shapes), *transposed]


def _uncached_layouts(options: ProductOptions) -> list[tuple[Sizes, Transposed]]:
    return [
        *((sizes, STRAIGHT) for sizes in options.uncached),
        *((options.uncached[-1], transposed) for transposed in TRANSPOSED),
    ]


def _cached(
    types: Types, sizes: Sizes, transposed: Transposed, options: ProductOptions
) -> ProductProbe:
    return ProductProbe(options.budget, types, sizes, transposed)


def _uncached(
    types: Types, sizes: Sizes, transposed: Transposed, options: ProductOptions
) -> ProductProbe:
    count = -(-options.uncached_bytes // sum(_moved(types, sizes)))
    return ProductProbe(options.budget, types, sizes, transposed, count)


def _moved(types: Types, sizes: Sizes) -> tuple[int, int, int]:
    """Return the bytes of lhs, rhs and the result."""
    (m, k, n), (lhs, rhs, result) = sizes, types
    return m * k * lhs.byte_size, k * n * rhs.byte_size, m * n * result.byte_size


def product_classes(
    options: ProductOptions, levels: tuple[MemoryLevel, ...], seconds: Seconds
) -> tuple[ProductClass, ...]:
    """Return the classes of each type, those with the largest minimum sizes first. ``levels``: bandwidths of copies."""
    classes: list[ProductClass] = []
    for types in options.types:
        own = [_fitted(types, shapes, options, seconds) for shapes in options.classes]
        uncached = _farther(types, own, options, levels, seconds)
        classes += [one.with_uncached(*uncached) for one in own]
    return tuple(classes)


def matrix_rate(classes: tuple[ProductClass, ...], kind: PrimitiveType) -> float:
    """Return the flops per second of a product of 1024 x 1024 matrices."""
    (one, *_) = (c for c in classes if c.types == (kind,) * 3)
    return 2 * 1024**3 / one.seconds(1024, 1024, 1024)


def _fitted(
    types: Types,
    shapes: ProductShapes,
    options: ProductOptions,
    seconds: Seconds,
) -> ProductClass:
    sizes = (*shapes.least, *shapes.blocks, *_at_once(types))
    unknown, layouts = ProductClass(*types, *sizes), _of(shapes)
    found = nonnegative_fit(
        [unknown.parts(*own, transposed) for own, transposed in layouts],
        [seconds[_cached(types, *layout, options)] for layout in layouts],
    )
    return ProductClass(*types, *sizes, *found)


def _farther(
    types: Types,
    cached: Sequence[ProductClass],
    options: ProductOptions,
    levels: tuple[MemoryLevel, ...],
    seconds: Seconds,
) -> list[float]:
    """Return the slowdowns of products on arrays that are in no cache, as arguments of ``ProductClass.with_uncached``:
    the additional time over what ``cached`` predicts, relative to that of a copy.
    """
    more = byte_seconds(levels, options.uncached_bytes) - byte_seconds(levels, TIMED_BYTES)
    if more <= 0:
        return []
    layouts = _uncached_layouts(options)
    parts, known = [], []
    for sizes, transposed in layouts:
        lhs, rhs, result = (more * size for size in _moved(types, sizes))
        parts.append((lhs, rhs, result, lhs * transposed[0], rhs * transposed[1]))
        one = class_for(cached, types, sizes)
        assert one is not None, "what is far is of a class that has no least sizes, or few"
        known.append(one.seconds(*sizes, transposed))
    found = [seconds[_uncached(types, *layout, options)] for layout in layouts]
    return [min(one, MOST_SLOWDOWN) for one in nonnegative_fit(parts, found, known)]


def _at_once(types: Types) -> tuple[int, int]:
    """Return the columns and the depth that are processed before data is reused; EVERYTHING if they are unknown."""
    variant = TileTypes(*types)
    if variant not in TILE_TYPES or unit_of(variant) is None:
        return EVERYTHING, EVERYTHING
    deep = most_depth(variant)
    steps = deep // variant.step_depth
    return tuning.RESIDENT_BYTES // (steps * variant.rhs_step_bytes) * PANEL, deep
