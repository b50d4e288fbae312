"""Calibration of matrix products: shapes of each class of sizes are timed, and a cost class is fitted to the times."""

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

#: Size that no matrix reaches.
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
    """Shapes (m, k, n) to which a cost class of products is fitted.

    Except for those of the largest shapes, operands and results fit into a core's second-level cache, so that times do
    not include those of outer levels.

    least: smallest lines, depth and multiplications of the class (``ProductClass``).
    blocks: line block and depth block of the class.
    shapes: measured shapes.
    transposed: shapes that are also measured with a transposed operand.
    batch: number of products of each call, since small products are mostly those of a batch, such as of heads.
    """

    least: Sizes
    blocks: tuple[int, int]
    shapes: tuple[Sizes, ...]
    transposed: tuple[Sizes, ...]
    batch: int = 1


CLASSES = (
    ProductShapes(  # large products: their packed blocks fit in caches, but not their operands and results
        (128, 128, 1 << 27),
        (32, 32),
        (
            *((512, 512, 512), (256, 1024, 512), (1024, 256, 512), (256, 256, 2048)),
            *((512, 2048, 256), (768, 512, 768), (512, 1024, 1024)),
        ),
        ((512, 512, 512), (512, 1024, 256)),
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
        (
            *((32, 32, 32), (64, 64, 64), (96, 96, 96), (32, 64, 256), (256, 8, 256)),
            *((128, 32, 128), (128, 128, 32)),
        ),
        ((64, 64, 64), (128, 128, 32)),
        batch=8,
    ),
    ProductShapes(
        (1, 1, 1 << 12),
        (1, 1),
        (
            *((1, 256, 512), (8, 256, 512), (16, 256, 256), (512, 256, 8), (256, 512, 16)),
            *((512, 8, 8), (1, 64, 64)),
        ),
        ((16, 256, 256), (256, 512, 16)),
    ),
    ProductShapes(  # vectors and matrices of a few elements, such as rotations
        (1, 1, 1),
        (1, 1),
        ((2, 2, 2), (3, 3, 3), (4, 4, 4), (8, 8, 3), (8, 2, 8), (16, 3, 3), (1, 8, 32)),
        ((4, 4, 4),),
        batch=128,
    ),
)


#: Shapes that are timed with uncached operands and results. Uncached matrices are large, with long rows. Most bytes of
#: the first three are those of lhs, of rhs, and of the result; the last one has bytes of all three. The first two are
#: also timed with that operand transposed.
UNCACHED = ((512, 1024, 64), (64, 256, 1024), (512, 64, 1024), (128, 512, 1024))


@dataclass(frozen=True)
class ProductOptions:
    """Options of the measurement of products.

    types: element types of lhs, rhs and result. classes: shapes of each class. uncached: shapes timed uncached.
    uncached_bytes: bytes that are touched between two uses of an uncached array, more than the last-level cache holds.
    budget: approximate seconds of one round of a shape.
    """

    types: tuple[Types, ...] = TYPES
    classes: tuple[ProductShapes, ...] = CLASSES
    uncached: tuple[Sizes, ...] = UNCACHED
    uncached_bytes: int = UNCACHED_BYTES
    budget: float = 0.0035


@dataclass(frozen=True)
class ProductProbe(CoreProbe):
    """Probe that computes ``count`` batches of products of ``sizes`` (m, k, n) in turn, each on its own arrays.

    types: element types of lhs, rhs and result. transposed: for lhs and for rhs, whether it is stored by columns.
    batch: products of a batch.
    """

    types: Types
    sizes: Sizes
    transposed: Transposed = (False, False)
    count: int = 1
    batch: int = 1

    @property
    def executions(self) -> int:
        """Return the number of products in one run of the action."""
        return self.count * self.batch

    def make(self, arena: Arena) -> Action:
        """Return the action for one core, which computes the products as programs on this machine do."""
        kernel = plan_dot((self.batch,), self.sizes, self.types)
        assert kernel is not None, "floats are summed, and bytes into s32"
        m, k, n = self.sizes
        scratch = tuple(arena.array(dims, kernel.compute.numpy) for dims in kernel.scratch_dims())
        actions = []
        for seed in range(self.count):
            lhs, rhs = (
                _matrices(arena, (self.batch, *dims), self.types[i], seed, self.transposed[i])
                for i, dims in enumerate(((m, k), (k, n)))
            )
            out = arena.array((self.batch, m, n), self.types[2].numpy)
            actions.append(CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out,), scratch)))
        return in_turn(actions)


def _matrices(
    arena: Arena, dims: tuple[int, int, int], kind: PrimitiveType, seed: int, by_columns: bool
) -> NDArray:
    """Return a batch of matrices stored by rows, or by columns."""
    count, rows, columns = dims
    if by_columns:
        return arena.numbers((count, columns, rows), kind, seed).swapaxes(1, 2)
    return arena.numbers(dims, kind, seed)


#: Memory orders of the operands: both row-major, and either one transposed.
STRAIGHT: Transposed = (False, False)
TRANSPOSED: tuple[Transposed, ...] = ((True, False), (False, True))


def product_probes(types: Types, options: ProductOptions) -> tuple[ProductProbe, ...]:
    """Return the probes of products of ``types``, first with cached and then with uncached operands."""
    cached = [
        _cached(types, *one, options, shapes.batch)
        for shapes in options.classes
        for one in _of(shapes)
    ]
    uncached = [_uncached(types, *one, options) for one in _uncached_layouts(options)]
    return (*dict.fromkeys(cached), *uncached)


def _of(shapes: ProductShapes) -> list[tuple[Sizes, Transposed]]:
    """Return (sizes, transposed) of the products to which a class is fitted."""
    transposed = [(sizes, transposed) for sizes in shapes.transposed for transposed in TRANSPOSED]
    return [*((sizes, STRAIGHT) for sizes in shapes.shapes), *transposed]


def _uncached_layouts(options: ProductOptions) -> list[tuple[Sizes, Transposed]]:
    """Return (sizes, transposed) of the products that are timed with uncached operands."""
    return [
        *((sizes, STRAIGHT) for sizes in options.uncached),
        *zip(options.uncached, TRANSPOSED, strict=False),
    ]


def _cached(
    types: Types, sizes: Sizes, transposed: Transposed, options: ProductOptions, batch: int
) -> ProductProbe:
    return ProductProbe(options.budget, types, sizes, transposed, batch=batch)


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
    """Return the cost classes of each type, those with the largest minimum sizes first.

    levels: bandwidths of copies by working set. seconds: times of ``product_probes`` of each type.
    """
    classes: list[ProductClass] = []
    for types in options.types:
        own = [_fitted(types, shapes, options, seconds) for shapes in options.classes]
        uncached = _farther(types, own, options, levels, seconds)
        classes += [one.with_uncached(*uncached) for one in own]
    return tuple(classes)


def matrix_rate(classes: tuple[ProductClass, ...], kind: PrimitiveType) -> float:
    """Return the flops per second that ``classes`` predict for a product of 1024 x 1024 matrices of ``kind``."""
    (one, *_) = (c for c in classes if c.types == (kind,) * 3)
    return 2 * 1024**3 / one.seconds(1024, 1024, 1024)


def _fitted(
    types: Types,
    shapes: ProductShapes,
    options: ProductOptions,
    seconds: Seconds,
) -> ProductClass:
    """Return the cost class of ``types`` that is fitted to the times of ``shapes``."""
    sizes = (*shapes.least, *shapes.blocks, *_at_once(types))
    unknown, layouts = ProductClass(*types, *sizes), _of(shapes)
    found = nonnegative_fit(
        [unknown.parts(*own, transposed) for own, transposed in layouts],
        [seconds[_cached(types, *layout, options, shapes.batch)] for layout in layouts],
    )
    return ProductClass(*types, *sizes, *found)


def _farther(
    types: Types,
    cached: Sequence[ProductClass],
    options: ProductOptions,
    levels: tuple[MemoryLevel, ...],
    seconds: Seconds,
) -> list[float]:
    """Return the slowdowns of products on uncached arrays, as arguments of ``ProductClass.with_uncached``.

    They are the times in addition to those that the classes ``cached`` predict, relative to those of a copy. The list
    is empty if copies of uncached arrays take no longer.
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
    """Return the columns and the depth that stay packed at a time (``ProductClass.columns`` and ``deep``).

    Both are EVERYTHING for products that the tile unit or its vector replacement does not compute.
    """
    variant = TileTypes(*types)
    if variant not in TILE_TYPES or unit_of(variant) is None:
        return EVERYTHING, EVERYTHING
    deep = most_depth(variant)
    steps = deep // variant.step_depth
    return tuning.RESIDENT_BYTES // (steps * variant.rhs_step_bytes) * PANEL, deep
