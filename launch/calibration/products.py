"""Products of matrices by type and classes of sizes: a few shapes of each are timed, and the class fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launch.calibration.memory import FAR_BYTES, Arena
from launch.calibration.probes import CoreProbe, Seconds
from launch.calibration.timing import Action, in_turn
from runtime.cpu.kernels.gemm.dot import plan_dot
from runtime.cpu.kernels.gemm.tile_choice import unit_of
from runtime.cpu.kernels.gemm.tile_types import PANEL, TILE_TYPES, TileTypes, most_depth
from runtime.cpu.prediction.work import TIMED_BYTES
from runtime.program.kernel import CPU_KERNELS, KernelArrays
from spmd.literal import NDArray
from spmd.machine.description import MemoryLevel, byte_seconds
from spmd.machine.fit import nonnegative_fit
from spmd.machine.products import ProductClass, Turned, class_for
from spmd.shape import PrimitiveType

P = PrimitiveType
Types = tuple[PrimitiveType, PrimitiveType, PrimitiveType]
Sizes = tuple[int, int, int]

#: Of packed columns of rhs, as products of packed panels have them (runtime/cpu/kernels/gemm/tile_block_ir.py).
_PACKED_BYTES = 768 << 10
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
    """A class's least sizes, blocks as ``ProductClass`` has them, and the shapes m, k, n that it is fitted to; turned:
    those of which an operand lies the other way round, too.

    Of all but the largest everything lies in a core's second-level cache: what more bytes take is the caches', not the
    product's.
    """

    least: Sizes
    blocks: tuple[int, int]
    shapes: tuple[Sizes, ...]
    turned: tuple[Sizes, ...]


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
        (32, 16, 1 << 20),
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


#: Shapes of the first class that are timed where operands and results are far: matrices that are far are large, and
#: their rows are long. One that is mostly lhs, one that is mostly rhs, one that is mostly result, and one of all.
FAR = ((512, 1024, 64), (64, 256, 1024), (512, 64, 1024), (128, 512, 1024))


@dataclass(frozen=True)
class ProductOptions:
    """far_bytes: how far what is far was touched before: where copies, too, take clearly longer than near, as all cores
    together have gone over more than their last cache holds. budget: seconds of one round of a shape.
    """

    types: tuple[Types, ...] = TYPES
    classes: tuple[ProductShapes, ...] = CLASSES
    far: tuple[Sizes, ...] = FAR
    far_bytes: int = FAR_BYTES
    budget: float = 0.0035


@dataclass(frozen=True)
class ProductProbe(CoreProbe):
    """Products of sizes m, k, n, one after the other, each of ``count`` on arrays of its own."""

    types: Types
    sizes: Sizes
    turned: Turned = (False, False)
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
            lhs = _matrix(arena, (m, k), self.types[0], seed, turned=self.turned[0])
            rhs = _matrix(arena, (k, n), self.types[1], seed, turned=self.turned[1])
            out = arena.array((m, n), self.types[2].numpy)
            actions.append(CPU_KERNELS.bind(kernel, KernelArrays((lhs, rhs), (out,), scratch)))
        return in_turn(actions)


def _matrix(
    arena: Arena, dims: tuple[int, int], kind: PrimitiveType, seed: int, *, turned: bool
) -> NDArray:
    """Row by row, or column by column."""
    return arena.numbers(dims[::-1], kind, seed).T if turned else arena.numbers(dims, kind, seed)


#: As rows and columns of operands lie: each is timed both ways.
STRAIGHT: Turned = (False, False)
TURNED: tuple[Turned, ...] = ((True, False), (False, True))


def product_probes(types: Types, options: ProductOptions) -> tuple[ProductProbe, ...]:
    near = [_near(types, *one, options) for shapes in options.classes for one in _of(shapes)]
    far = [_far(types, *one, options) for one in _far_layouts(options)]
    return (*dict.fromkeys(near), *far)


def _of(shapes: ProductShapes) -> list[tuple[Sizes, Turned]]:
    """Return the products to which a class is fitted."""
    turned = [(sizes, turned) for sizes in shapes.turned for turned in TURNED]
    return [*((sizes, STRAIGHT) for sizes in shapes.shapes), *turned]


def _far_layouts(options: ProductOptions) -> list[tuple[Sizes, Turned]]:
    return [
        *((sizes, STRAIGHT) for sizes in options.far),
        *((options.far[-1], turned) for turned in TURNED),
    ]


def _near(types: Types, sizes: Sizes, turned: Turned, options: ProductOptions) -> ProductProbe:
    return ProductProbe(options.budget, types, sizes, turned)


def _far(types: Types, sizes: Sizes, turned: Turned, options: ProductOptions) -> ProductProbe:
    count = -(-options.far_bytes // sum(_moved(types, sizes)))
    return ProductProbe(options.budget, types, sizes, turned, count)


def _moved(types: Types, sizes: Sizes) -> tuple[int, int, int]:
    """Bytes of lhs, rhs and the result."""
    (m, k, n), (lhs, rhs, result) = sizes, types
    return m * k * lhs.byte_size, k * n * rhs.byte_size, m * n * result.byte_size


def product_classes(
    options: ProductOptions, levels: tuple[MemoryLevel, ...], seconds: Seconds
) -> tuple[ProductClass, ...]:
    """Those of each type, the ones that need most first. levels: of copies."""
    classes: list[ProductClass] = []
    for types in options.types:
        own = [_fitted(types, shapes, options, seconds) for shapes in options.classes]
        far = _farther(types, own, options, levels, seconds)
        classes += [one.where_far(*far) for one in own]
    return tuple(classes)


def matrix_rate(classes: tuple[ProductClass, ...], kind: PrimitiveType) -> float:
    """Flops of a cube of 1024."""
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
        [unknown.parts(*own, turned) for own, turned in layouts],
        [seconds[_near(types, *layout, options)] for layout in layouts],
    )
    return ProductClass(*types, *sizes, *found)


def _farther(
    types: Types,
    near: Sequence[ProductClass],
    options: ProductOptions,
    levels: tuple[MemoryLevel, ...],
    seconds: Seconds,
) -> list[float]:
    """Return the factors of far reads over those of a copy, as in ``ProductClass.where_far``: products on arrays that
    are in no cache take so much longer than ``near`` predicts.
    """
    more = byte_seconds(levels, options.far_bytes) - byte_seconds(levels, TIMED_BYTES)
    if more <= 0:
        return []
    layouts = _far_layouts(options)
    parts, known = [], []
    for sizes, turned in layouts:
        lhs, rhs, result = (more * size for size in _moved(types, sizes))
        parts.append((lhs, rhs, result, lhs * turned[0], rhs * turned[1]))
        one = class_for(near, types, sizes)
        assert one is not None, "what is far is of a class that has no least sizes, or few"
        known.append(one.seconds(*sizes, turned))
    found = [seconds[_far(types, *layout, options)] for layout in layouts]
    return nonnegative_fit(parts, found, known)


def _at_once(types: Types) -> tuple[int, int]:
    """Columns and depth that are gone over before anything is met again: all of it where nothing is known of it."""
    form = TileTypes(*types)
    if form not in TILE_TYPES or unit_of(form) is None:
        return EVERYTHING, EVERYTHING
    deep = most_depth(form)
    steps = deep // form.step_depth
    return _PACKED_BYTES // (steps * form.rhs_step_bytes) * PANEL, deep
