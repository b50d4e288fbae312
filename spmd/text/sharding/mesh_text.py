"""XLA's own mesh text, shared by named shardings and replica groups: ``mesh['x'=2,'y'=4], device_ids=(3,2,1,0)``."""

from __future__ import annotations

import itertools
import math

import numpy as np

from spmd.lazy_dataclass import dataclass
from spmd.limits import MAX_DEVICES, MAX_RANK
from spmd.text.lexer import Scanner


@dataclass(frozen=True, slots=True)
class MeshText:
    """Axes in order, and the device of each position where it is not the identity."""

    axes: tuple[tuple[str, int], ...]
    device_ids: tuple[int, ...] | None = None

    def size_of(self, name: str) -> int | None:
        return dict(self.axes).get(name)


#: A full axis, or the sub-axis (pre-size, size) of it.
AxisText = tuple[str, tuple[int, int] | None]


def read_mesh(scanner: Scanner) -> MeshText:
    """Read ``mesh[...]`` and the device list after it, if there is one."""
    start = scanner.pos
    scanner.expect("mesh")
    axes: list[tuple[str, int]] = []
    for _ in scanner.items("[", "]"):
        name = scanner.string("an axis name")
        scanner.expect("=")
        axes.append((name, scanner.integer("an axis size")))
    total = math.prod(size for _, size in axes)
    if any(size < 1 for _, size in axes) or total > MAX_DEVICES:
        scanner.fail(
            f"mesh sizes are out of range: {total} devices, the limit is {MAX_DEVICES}", start
        )
    if len(axes) > MAX_RANK:
        scanner.fail(f"a mesh has at most {MAX_RANK} axes", start)
    return MeshText(tuple(axes), _device_ids(scanner, total))


def _device_ids(scanner: Scanner, total: int) -> tuple[int, ...] | None:
    before = scanner.pos
    scanner.consume_if(",")
    if not scanner.consume_if("device_ids"):
        scanner.pos = before
        return None
    scanner.expect("=")
    scanner.expect("(")
    start = scanner.pos
    if scanner.peek("["):
        ids = _iota_ids(scanner, total)
        scanner.expect(")")
    else:
        ids = tuple(scanner.integer() for _ in scanner.items("", ")"))
    if len(ids) != total:
        scanner.fail(f"expected {total} device ids, found {len(ids)}", start)
    return ids


def _iota_ids(scanner: Scanner, total: int) -> tuple[int, ...]:
    """Read ``[2,2]T(1,0)``: 0..n-1 reshaped, transposed and flattened."""
    start = scanner.pos
    dims = scanner.integers("[", "]")
    scanner.consume_if("<=")
    if scanner.peek("["):
        dims = scanner.integers("[", "]")
    perm = tuple(range(len(dims)))
    if scanner.consume_if("T"):
        perm = scanner.integers("(", ")")
    if len(dims) > MAX_RANK or any(size < 1 for size in dims) or math.prod(dims) != total:
        scanner.fail(f"expected sizes with the product {total}", start)
    if sorted(perm) != list(range(len(dims))):
        scanner.fail("expected a permutation of the dimensions", start)
    scanner.source.imply(total, "device lists", start)
    return tuple(np.arange(total).reshape(dims).transpose(perm).reshape(-1).tolist())


def read_axis(scanner: Scanner, mesh: MeshText) -> AxisText:
    """Read ``'x'``, or ``'x':(1)2`` (pre-size 1, size 2)."""
    start = scanner.skip_space()
    name = scanner.string("an axis name in quotes")
    size = mesh.size_of(name)
    if size is None:
        scanner.fail(f"the mesh has no axis {name!r}", start)
    if not scanner.consume_if(":"):
        return name, None
    scanner.expect("(")
    pre = scanner.integer("a pre-size")
    scanner.expect(")")
    part = scanner.integer("a sub-axis size")
    if pre < 1 or part < 1 or size % (pre * part) != 0:
        scanner.fail(f"sub-axis ({pre}){part} does not divide axis {name!r} of size {size}", start)
    return name, (pre, part)


def read_axes(scanner: Scanner, mesh: MeshText) -> tuple[AxisText, ...]:
    """Read ``{'x', 'y':(1)2}``."""
    return tuple(read_axis(scanner, mesh) for _ in scanner.items())


@dataclass(frozen=True, slots=True)
class SubAxes:
    """A mesh whose axes are split at the borders of all sub-axes in use, so that each axis reference is a run of entire
    sub-axes.
    """

    sizes: tuple[int, ...]
    #: (axis name, pre-size) of each sub-axis.
    keys: tuple[tuple[str, int], ...]

    @staticmethod
    def of(mesh: MeshText, used: tuple[AxisText, ...]) -> SubAxes:
        """Split the axes of ``mesh``. If borders do not nest, a sub-axis has no integer size; callers check with
        ``fits``.
        """
        sizes: list[int] = []
        keys: list[tuple[str, int]] = []
        for name, size in mesh.axes:
            cuts = {1, size}
            for axis, sub in used:
                if axis == name and sub is not None:
                    cuts |= {sub[0], sub[0] * sub[1]}
            ordered = sorted(cuts)
            for low, high in itertools.pairwise(ordered):
                sizes.append(high // low if high % low == 0 else 0)
                keys.append((name, low))
        return SubAxes(tuple(sizes), tuple(keys))

    @property
    def fits(self) -> bool:
        return 0 not in self.sizes

    def positions(self, axis: AxisText) -> tuple[int, ...]:
        """Return the sub-axes that the axis covers, major to minor."""
        name, sub = axis
        return tuple(
            i
            for i, (owner, low) in enumerate(self.keys)
            if owner == name and (sub is None or sub[0] <= low < sub[0] * sub[1])
        )
