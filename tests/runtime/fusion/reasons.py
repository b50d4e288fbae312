"""Reasons for which a fusion has no emitter."""

from __future__ import annotations

from runtime.fusion.emitters import emitted
from runtime.fusion.refusal import NoEmitterError
from spmd.hlo import HloComputation, HloInstruction


def why_not(fused: HloInstruction | HloComputation) -> str:
    """The reason, a sentence, for which ``emitter_of`` gives None; an empty string where it does not."""
    try:
        emitted(fused)
    except NoEmitterError as reason:
        return str(reason)
    return ""
