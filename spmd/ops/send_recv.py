"""Source and target pairs of send and recv, which XLA keeps in a frontend attribute."""

from __future__ import annotations

import re
from typing import Final

from spmd.hlo.instruction import HloInstruction
from spmd.source_target_pairs import Pair

#: Frontend attribute of a send and of its recv: pairs of partitions, as in ``{{0,1},{1,2}}``.
PAIRS_ATTRIBUTE: Final = "_xla_send_recv_source_target_pairs"

_PAIR = re.compile(r"\{\s*(\d{1,18})\s*,\s*(\d{1,18})\s*\}")


def source_target_pairs(instruction: HloInstruction) -> tuple[Pair, ...] | None:
    """Return the pairs (source, target) of a send or recv, or None if it does not state them."""
    text = instruction.annotations.frontend(PAIRS_ATTRIBUTE)
    if text is None:
        return None
    return tuple((int(source), int(target)) for source, target in _PAIR.findall(text))
