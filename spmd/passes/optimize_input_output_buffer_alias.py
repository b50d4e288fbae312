"""Let results use the memory of parameters that their caller has donated."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.donors import match_donors
from spmd.hlo.module import HloModule, InputOutputAlias, Stage
from spmd.lazy_dataclass import dataclass
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass


@register_pass
@dataclass(frozen=True)
class OptimizeInputOutputBufferAlias(FueledPass):
    """buffer_donor={ (0, {}) }  =>  input_output_alias={ {1}: (0, {}, may-alias) }

    for the result that is the donor itself, else the first of its shape and sharding that shares no memory yet, else
    the first of its shape. JAX leaves this to the compiler where it does not know how results are sharded, so it is
    done on one device's program. A donor that no result fits stays one.
    """

    name: ClassVar[str] = "optimize-input-output-buffer-alias"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        pairs = dict(fuel.enough_for(match_donors(module)))
        module.input_output_alias += tuple(
            InputOutputAlias(index, donor.parameter, donor.parameter_index)
            for donor, index in pairs.items()
        )
        module.buffer_donors = tuple(d for d in module.buffer_donors if d not in pairs)
        return bool(pairs)
