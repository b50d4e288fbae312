"""Write on every loop how often it runs, where that is known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import ClassVar

from spmd.analysis.trip_count import trip_count
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass

_KEY = "known_trip_count"


@register_pass
@dataclass(frozen=True)
class WhileLoopTripCountAnnotator(InstructionPass):
    """while(s), ..  =>  while(s), .., backend_config={"known_trip_count":{"n":"12"}}

    This is XLA's notation. The statement outlives the pattern that proves it, which later passes may change. XLA's
    other fields (the induction variable's index, start and step) are dropped, as indices of elements change.
    """

    name: ClassVar[str] = "while-loop-trip-count-annotator"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.WHILE,)

    def editor(self, module: HloModule) -> Edit:
        return _annotate


def _annotate(loop: HloInstruction) -> bool:
    config = _object(loop.annotations.backend_config)
    if config is None or _KEY in config:
        return False
    trips = trip_count(loop)
    if trips is None:
        return False
    config[_KEY] = {"n": str(trips)}
    text = json.dumps(config, separators=(",", ":"))
    loop.annotations = replace(loop.annotations, backend_config=text)
    return True


def forget_trip_count(loop: HloInstruction) -> None:
    """Remove the loop's stated trip count, which no longer holds."""
    config = _object(loop.annotations.backend_config)
    if config and config.pop(_KEY, None) is not None:
        text = json.dumps(config, separators=(",", ":")) if config else ""
        loop.annotations = replace(loop.annotations, backend_config=text)


def _object(text: str) -> dict[str, object] | None:
    """Return the configuration as a JSON object; None if it is something else."""
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
