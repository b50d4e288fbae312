"""Products of matrices by type and classes of sizes: a few shapes of each are timed, and the class fitted to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from launch.calibration.memory import aligned, numbers
from launch.calibration.timing import Action, all_on_every_core, in_turn, on_every_core
from runtime.codegen.llvm_tile_product import most_depth
from runtime.codegen.llvm_tiles import FORMS, PANEL, TileForm
from runtime.codegen.tile_unit import has_tile_unit
from runtime.kernel import CPU_KERNELS, KernelArrays
from runtime.kernels.dot import DotKernel
from runtime.prediction.work import NEAR
from spmd.machine.description import MemoryLevel, byte_seconds
from spmd.machine.fit import nonnegative_fit
from spmd.machine.products import ProductClass
from spmd.shape import PrimitiveType

P = PrimitiveType
Types = tuple[PrimitiveType, PrimitiveType, PrimitiveType]
Sizes = tuple[int, int, int]

#: Of packed columns of rhs, as the tile unit's products have them (runtime/codegen/llvm_tile_product.py).
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
    """A class's least sizes, blocks as ``ProductClass`` has them, and the shapes m, k, n that it is fitted to.

    Of those everything lies in a core's second-level cache: what more bytes take is the caches', not the product's.
    """

    least: Sizes
    blocks: tuple[int, int]
    shapes: tuple[Sizes, ...]


CLASSES = (
    ProductShapes(
        (32, 16, 1 << 20),
        (32, 32),
        (
            *((128, 128, 128), (256, 256, 256), (32, 256, 256), (256, 32, 256), (256, 256, 32)),
            *((64, 512, 64), (64, 64, 512), (512, 64, 64), (256, 320, 128)),
        ),
    ),
    ProductShapes(
        (32, 1, 1),
        (16, 1),
        ((32, 32, 32), (64, 64, 64), (96, 96, 96), (32, 64, 256), (256, 8, 256)),
    ),
    ProductShapes(
        (1, 1, 1),
        (1, 1),
        (
            *((1, 256, 512), (8, 256, 512), (16, 256, 256), (512, 256, 8), (256, 512, 16)),
            *((512, 8, 8), (1, 64, 64), (4, 4, 4)),
        ),
    ),
)


#: Shapes of the first class whose operands and results are timed where they are far, too.
FAR = ((512, 256, 64), (512, 64, 512), (256, 512, 256))


@dataclass(frozen=True)
class ProductOptions:
    """far_bytes: how far what is far was touched before."""

    types: tuple[Types, ...] = TYPES
    classes: tuple[ProductShapes, ...] = CLASSES
    far: tuple[Sizes, ...] = FAR
    far_bytes: int = 1 << 24
    budget: float = 0.01


def product_classes(
    options: ProductOptions, levels: tuple[MemoryLevel, ...]
) -> tuple[ProductClass, ...]:
    """Those of each type, the ones that need most first. levels: of copies."""
    classes: list[ProductClass] = []
    for types in options.types:
        own = [_fitted(types, shapes, options.budget) for shapes in options.classes]
        far = _far(own[0], options, levels)
        classes += [replace(one, far=far) for one in own]
    return tuple(classes)


def matrix_rate(classes: tuple[ProductClass, ...], kind: PrimitiveType) -> float:
    """Flops of a cube of 1024."""
    (one, *_) = (c for c in classes if c.types == (kind,) * 3)
    return 2 * 1024**3 / one.seconds(1024, 1024, 1024)


def _fitted(types: Types, shapes: ProductShapes, budget: float) -> ProductClass:
    sizes = (*shapes.least, *shapes.blocks, *_at_once(types))
    unknown = ProductClass(*types, *sizes, 0.0, 0.0, 0.0, 0.0, 0.0)
    makes = [partial(_product, types, own) for own in shapes.shapes]
    seconds = all_on_every_core(makes, budget)
    found = nonnegative_fit([unknown.parts(*own) for own in shapes.shapes], seconds)
    return ProductClass(*types, *sizes, *found)


def _far(near: ProductClass, options: ProductOptions, levels: tuple[MemoryLevel, ...]) -> float:
    """How much longer products take one after the other on ever other arrays than copies of as many bytes do."""
    more = byte_seconds(levels, options.far_bytes) - byte_seconds(levels, NEAR)
    items = [kind.byte_size for kind in near.types]
    parts, seconds = [], []
    for m, k, n in options.far:
        moved = m * k * items[0] + k * n * items[1] + m * n * items[2]
        count = -(-options.far_bytes // moved)
        make = partial(_products, near.types, (m, k, n), count)
        late = on_every_core(make, options.budget) / count
        hot = on_every_core(partial(_product, near.types, (m, k, n)), options.budget)
        parts.append(more * moved / hot)
        seconds.append(late / hot - 1)
    return max(sum(seconds), 0.0) / sum(parts) if more > 0 else 1.0


def _at_once(types: Types) -> tuple[int, int]:
    """Columns and depth that are gone over before anything is met again: all of it where nothing is known of it."""
    form = TileForm(*types)
    if form not in FORMS or not has_tile_unit():
        return EVERYTHING, EVERYTHING
    deep = most_depth(form)
    steps = deep // form.step_depth
    return _PACKED_BYTES // (steps * form.rhs_step_bytes) * PANEL, deep


def _product(types: Types, sizes: Sizes) -> Action:
    return _products(types, sizes, 1)


def _products(types: Types, sizes: Sizes, count: int) -> Action:
    """One after the other, each on arrays of its own, as programs on this machine make them."""
    kernel = DotKernel.planned((), sizes, types)
    assert kernel is not None, "floats are summed, and bytes into s32"
    m, k, n = sizes
    scratch = tuple(aligned(dims, kernel.compute.numpy) for dims in kernel.scratch_dims())
    actions = []
    for number in range(count):
        lhs, rhs = (
            numbers(dims, kind, number)
            for dims, kind in zip(((m, k), (k, n)), types[:2], strict=True)
        )
        arrays = KernelArrays((lhs, rhs), (aligned((m, n), types[2].numpy),), scratch)
        actions.append(CPU_KERNELS.bind(kernel, arrays))
    return in_turn(actions)
