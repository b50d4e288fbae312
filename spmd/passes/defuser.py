"""Replace fusions by the instructions that were fused."""

from __future__ import annotations

from typing import ClassVar

from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.call_inliner import inline_calls
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class Defuser(FueledPass):
    """Open every ``fusion``, innermost first. The instructions stand where the fusion stood: a schedule stays one.

    What fuses programs is this project's own cost model; another compiler's choice is no reason to fuse.
    """

    name: ClassVar[str] = "defuser"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        return inline_calls(module, Opcode.FUSION, lambda _: True, fuel)
