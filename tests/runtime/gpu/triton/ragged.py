"""Ragged products of all kinds as text, and inputs for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.gpu.triton.kernel import TritonKernel
from runtime.gpu.triton.ragged_dot import ragged_kernel
from runtime.program.strides import StridedView
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module
from tests.runtime.gpu.triton.running import dense_views

HIGHEST = ", operand_precision={highest,highest}"


@dataclass(frozen=True)
class Ragged:
    """Ragged product of arrays of sizes lhs, rhs and result, of types ``kinds``, with the attributes ``numbers``.

    groups: the sizes of groups, for each index of the dimensions before.
    """

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    groups: Sequence[object]
    result: tuple[int, ...]
    numbers: str
    kinds: tuple[str, str, str] = ("f32", "f32", "f32")
    of_groups: str = "s32"
    precision: str = HIGHEST

    @property
    def text(self) -> str:
        sizes = np.array(self.groups).shape
        arrays = [*zip(self.kinds[:2], (self.lhs, self.rhs), strict=True), (self.of_groups, sizes)]
        shapes = [f"{kind}[{','.join(map(str, dims))}]" for kind, dims in arrays]
        made = f"{self.kinds[2]}[{','.join(map(str, self.result))}]"
        body = "\n".join(f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes))
        return (
            f"HloModule ragged\nENTRY main {{\n{body}\n"
            f"  ROOT r = {made} ragged-dot(p0, p1, p2), {self.numbers}{self.precision}\n}}\n"
        )

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        random = np.random.default_rng(seed)
        factors = [
            random.standard_normal(dims).astype(np.float32).astype(PrimitiveType(kind).numpy)
            for kind, dims in zip(self.kinds, (self.lhs, self.rhs), strict=False)
        ]
        return [*factors, np.array(self.groups, PrimitiveType(self.of_groups).numpy)]

    def kernel(
        self, views: Sequence[StridedView] | None = None, *, tf32: bool = True
    ) -> TritonKernel:
        """The kernel on arrays and a result of these layouts, by default row-major ones."""
        operands, results = dense_views(self.text)
        *given, made = views or (*operands, *results)
        return ragged_kernel(parse_module(self.text).entry.root, given, made, tf32=tf32)


def of_rows(
    groups: Sequence[int], m: int, k: int, n: int, *, transposed: bool = False, **more: object
) -> Ragged:
    """[m, k] times [g, k, n], or [g, n, k] if ``transposed``: groups are runs of rows."""
    g = len(groups)
    numbers = (
        f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{{2 if transposed else 1}}}, "
        "lhs_ragged_dims={0}, rhs_group_dims={0}"
    )
    rhs = (g, n, k) if transposed else (g, k, n)
    return Ragged((m, k), rhs, groups, (m, n), numbers, **more)  # type: ignore[arg-type]


def of_depth(groups: Sequence[int], m: int, k: int, n: int, **more: object) -> Ragged:
    """[m, k] times [m, n] for each group of m: groups are runs of the summed dimension."""
    numbers = "lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}"
    return Ragged((m, k), (m, n), groups, (len(groups), k, n), numbers, **more)  # type: ignore[arg-type]


def even(total: int, count: int) -> list[int]:
    """``count`` sizes of groups that add up to ``total``; the first takes the remainder."""
    size, rest = divmod(total, count)
    return [size + rest, *[size] * (count - 1)]


_NARROW = ("bf16", "bf16", "bf16")
BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}, "
#: Products by name. Groups are empty, end within blocks, leave rows over, or have more than all rows.
CASES = {
    "rows": of_rows([5, 0, 16, 11], 32, 16, 24),
    "rows in bf16": of_rows([90, 0, 131, 7], 300, 70, 150, kinds=_NARROW),
    "rows in f16": of_rows([0, 0, 40], 40, 40, 17, kinds=("f16", "f16", "f32")),
    "rows of mixed types": of_rows([30, 2], 40, 33, 17, kinds=("bf16", "f32", "f32")),
    "rows of many groups": of_rows([i % 3 for i in range(70)], 75, 20, 40),
    "rows, transposed": of_rows([9, 1, 20, 3], 50, 40, 150, transposed=True, kinds=_NARROW),
    "rows, all over": of_rows([0, 0], 33, 8, 8),
    "rows, too many": of_rows([20, 30, 9], 40, 8, 8),
    "one row": of_rows([0, 1, 0], 1, 100, 30),
    "rows, sizes of 64 bits": of_rows([3, 2**33, 4], 20, 8, 8, of_groups="s64"),
    "rows, sizes of 8 bits": of_rows([3, 200, 4], 220, 8, 8, of_groups="u8"),
    "rows of a batch": Ragged(
        (2, 35, 10),
        (3, 2, 10, 20),
        [[10, 20, 5], [0, 33, 1]],
        (2, 35, 20),
        "lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}, "
        "lhs_ragged_dims={1}, rhs_group_dims={0}",
    ),
    "rows, and others": Ragged(
        (3, 20, 2, 7, 4),
        (4, 3, 7, 5, 3),
        [[8, 2, 10], [0, 0, 20], [1, 2, 3]],
        (3, 20, 2, 5, 3),
        "lhs_contracting_dims={3,4}, rhs_contracting_dims={2,0}, lhs_ragged_dims={1}, rhs_group_dims={1}",
    ),
    "rows by nothing": Ragged(
        (20,),
        (3, 30),
        [4, 0, 9],
        (20, 30),
        "lhs_ragged_dims={0}, rhs_group_dims={0}",
    ),
    "depth": of_depth([5, 0, 16, 11], 32, 16, 24),
    "depth in bf16": of_depth([90, 0, 131, 7], 300, 70, 150, kinds=_NARROW),
    "depth, nothing": of_depth([0, 0], 33, 8, 8),
    "depth, too many": of_depth([20, 30, 9], 40, 8, 8),
    "depth of a batch": Ragged(
        (2, 3, 40),
        (2, 40, 20),
        [[7, 33], [0, 12]],
        (2, 2, 3, 20),
        BATCHED + "lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={2}",
    ),
    "depth of steps": Ragged(
        (4, 40, 6, 5),
        (40, 4, 20),
        [[7, 33], [0, 12], [40, 0], [3, 4]],
        (2, 6, 5, 20),
        "lhs_contracting_dims={0,1}, rhs_contracting_dims={1,0}, lhs_ragged_dims={1}",
    ),
}
