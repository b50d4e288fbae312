"""StableHLO text and bytecode become HLO through jaxlib (the ``jax`` extra)."""

from __future__ import annotations

import importlib

from spmd.errors import HloParseError, UnsupportedError
from spmd.hlo.module import HloModule
from spmd.proto.reader import parse_proto

#: First bytes of MLIR bytecode.
_BYTECODE = b"ML\xefR"


def stablehlo_of(data: bytes) -> tuple[bytes, str] | None:
    """Return the StableHLO bytecode in ``data`` and the name of ``data``'s format; None if it is another format.

    Bytecode stands by itself, or in what ``jax.export`` serializes: a FlatBuffer, in which the bytes of an array follow
    their number.
    """
    if data.startswith(_BYTECODE):
        return data, "StableHLO bytecode"
    root = int.from_bytes(data[:4], "little")
    begin = data.find(_BYTECODE)
    if begin < 8 or root % 4 or not 4 <= root < min(len(data), 1 << 16):
        return None
    size = int.from_bytes(data[begin - 4 : begin], "little")
    if begin + size > len(data):
        return None
    return data[begin : begin + size], "a jax.export artifact"


def parse_stablehlo(
    text: str | bytes, file: str = "<text>", what: str = "StableHLO text"
) -> HloModule:
    """Return the HLO of StableHLO text or bytecode (Shardy annotations included), converted by jaxlib.

    ``what``: the format, for messages. Raises UnsupportedError without jaxlib; HloParseError with jaxlib's message for
    what it refuses.
    """
    try:
        jaxlib = importlib.import_module("jaxlib._jax")
    except ImportError as error:
        raise UnsupportedError(
            f"{file}: this is {what}, which is converted through the jax extra "
            '(pip install "spmd-executor[jax]"); or write HLO text with jax.jit(f).lower(*args).as_text("hlo")'
        ) from error
    try:
        computation = jaxlib.mlir.mlir_module_to_xla_computation(
            text, use_tuple_args=False, return_tuple=False
        )
    except Exception as error:  # jaxlib raises types of its own if MLIR rejects the text
        raise HloParseError(f"{file}: jaxlib cannot convert this StableHLO: {error}") from error
    return parse_proto(computation.as_serialized_hlo_module_proto(), file)
