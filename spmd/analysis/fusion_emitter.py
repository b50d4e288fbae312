"""Name of the emitter that generates the code of a fusion, which its backend config states."""

from __future__ import annotations

import json

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode

#: Emitter of attention: the fusion computes score matrices block by block, and only their products and reductions are
#: results.
ATTENTION = "attention"
#: Emitter of a convolution and what is computed of it, which a GPU's library computes in one call.
CONVOLUTION = "convolution"


def emitter_config(emitter: str) -> str:
    """Return the backend config of a fusion of ``emitter``."""
    return json.dumps({"fusion_config": {"emitter": emitter}})


def stated_emitter(fusion: HloInstruction) -> str | None:
    """Return the name of the emitter in the backend config of ``fusion``, or None if another compiler made it."""
    try:
        name = json.loads(fusion.annotations.backend_config or "{}")["fusion_config"]["emitter"]
    except (ValueError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None


def is_attention(x: HloInstruction) -> bool:
    """Return whether ``x`` is a fusion of attention."""
    return x.opcode is Opcode.FUSION and stated_emitter(x) == ATTENTION
