"""Convolutions that a GPU's library computes on row-major operands, as their back end config states."""

from __future__ import annotations

import json
from dataclasses import replace

from spmd.analysis.fusion_emitter import CONVOLUTION, stated_emitter
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.window import Window

_CONFIG = json.dumps({"convolution_config": {"operands": "row-major"}})


def require_row_major(convolution: HloInstruction) -> None:
    """State in the back end config of ``convolution`` that its operands have to be row-major."""
    convolution.annotations = replace(convolution.annotations, backend_config=_CONFIG)


def requires_row_major(convolution: HloInstruction) -> bool:
    """Return whether the back end config of ``convolution`` states that its operands have to be row-major."""
    return convolution.annotations.backend_config == _CONFIG


def is_library_convolution(x: HloInstruction) -> bool:
    """Return whether ``x`` is a convolution whose operands have to be row-major, or a fusion of one."""
    if x.opcode is Opcode.FUSION:
        return stated_emitter(x) == CONVOLUTION
    return x.opcode is Opcode.CONVOLUTION and requires_row_major(x)


def reverses_filter(window: Window) -> bool:
    """Return whether a convolution with this window is the image's gradient of one without strides."""
    wide = [dim for dim in window.dims if dim.size > 1]
    return (
        bool(wide)
        and all(dim.reversal for dim in wide)
        and all(dim.stride == dim.base_dilation == 1 for dim in window.dims)
    )
