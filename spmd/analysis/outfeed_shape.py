"""Shape of the global value whose tiles an outfeed of one device outputs, as the instruction states it."""

from __future__ import annotations

from dataclasses import replace

from spmd.hlo.instruction import Annotations, HloInstruction
from spmd.shape import Shape
from spmd.shape_compatibility import without_layout

#: Frontend attribute of a per-device outfeed: the shape of the global value whose tiles it outputs.
_GLOBAL_SHAPE = "outfeed_global_shape"


def with_global_shape(annotations: Annotations, shape: Shape) -> Annotations:
    """Return the annotations of an outfeed that outputs tiles of a value of ``shape``."""
    said = (_GLOBAL_SHAPE, str(without_layout(shape)))
    attributes = (*annotations.frontend_attributes, said)
    return replace(annotations, frontend_attributes=attributes)


def global_shape_text(outfeed: HloInstruction) -> str | None:
    """Return the shape text that ``with_global_shape`` stored on an outfeed; None if there is none."""
    return outfeed.annotations.frontend(_GLOBAL_SHAPE)
