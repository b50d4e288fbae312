"""Products of tiles as Triton expressions."""

from __future__ import annotations

from collections.abc import Collection

from runtime.gpu.triton.elements import cast
from runtime.gpu.triton.refusal import NoTritonKernelError
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.ops.product_precision import allows_tf32
from spmd.shape import PrimitiveType

#: Types that tensor cores multiply as they are. Others are converted to f32.
_NARROW = (PrimitiveType.BF16, PrimitiveType.F16)


@dataclass(frozen=True, slots=True)
class TileProduct:
    """Product of tiles whose sums are f32. kind: type to which both factors are converted.

    tf32: factors of type f32 are rounded to TF32.
    """

    kind: PrimitiveType
    tf32: bool

    @staticmethod
    def of(kinds: Collection[PrimitiveType], attrs: DotAttrs, *, tf32: bool) -> TileProduct:
        """Return the product of factors of types ``kinds``, as precise as ``attrs`` requires.

        tf32: factors of type f32 may be rounded to TF32 if ``attrs`` allow it. Raises NoTritonKernelError if Triton
        does not multiply factors of these types with sums in f32.
        """
        for kind in kinds:
            if kind not in (*_NARROW, PrimitiveType.F32):
                raise NoTritonKernelError(f"a product of {kind}")
        same = set(kinds)
        kind = same.pop() if len(same) == 1 else PrimitiveType.F32
        return TileProduct(kind, kind is PrimitiveType.F32 and tf32 and allows_tf32(attrs))

    def text(
        self,
        left: tuple[str, PrimitiveType],
        right: tuple[str, PrimitiveType],
        *,
        transposed: bool = False,
        acc: str = "",
    ) -> str:
        """Return the expression of ``left`` times ``right``, each a name and a type, plus ``acc``.

        transposed: ``right`` is transposed.
        """
        first, second = (cast(name, kind, self.kind) for name, kind in (left, right))
        if transposed:
            second = f"tl.trans({second})"
        arguments = [first, second, *([acc] if acc else [])]
        if self.kind is PrimitiveType.F32:
            arguments.append(f'input_precision="{"tf32" if self.tf32 else "ieee"}"')
        return f"tl.dot({', '.join(arguments)})"
