"""Write calls of GPU libraries and of XLA's partitioner as the operations that they stand for."""

from __future__ import annotations

from typing import ClassVar

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.lazy_dataclass import dataclass
from spmd.library_calls import FAMILIES  # noqa: F401 - fills the table
from spmd.library_calls.registry import Expansion, expanded, expansion_of
from spmd.passes.call_expansion import expand_calls
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class LibraryCallExpander(FueledPass):
    """Replace custom calls of cuBLAS, cuBLASLt, cuDNN and CUB by dot, convolution, sort and elementwise operations.

    Calls that XLA's partitioner reads become slices, concatenations and paddings.

        c = (f32[4,8], s8[1024]) custom-call(x, y, bias),        d = f32[4,8] dot(x, y)
            custom_call_target="__cublas$lt$matmul",         =>  w = f32[4,8] broadcast(bias), dimensions={1}
            backend_config={.. "epilogue":"BIAS" ..}             r = f32[4,8] add(d, w)

    A workspace that something reads becomes an array of any bytes. A schedule stays one: the operations stand where the
    call stood.
    """

    name: ClassVar[str] = "library-call-expander"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        return expand_calls(module, fuel, _expansion)


def _expansion(call: HloInstruction) -> Expansion | None:
    return expanded if expansion_of(call) else None
