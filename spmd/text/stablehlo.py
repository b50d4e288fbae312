"""StableHLO text and JAX functions become HLO through jaxlib (the ``jax`` extra), the only place that imports it."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

from spmd.errors import HloParseError, SpmdError, UnsupportedError
from spmd.hlo.module import HloModule
from spmd.proto.reader import parse_proto


class Lowerable(Protocol):
    """What ``jax.jit`` returns, as far as it is used here."""

    def lower(self, *args: Any, **kwargs: Any) -> Any: ...


def parse_stablehlo(text: str, file: str = "<text>") -> HloModule:
    """The HLO of StableHLO text (Shardy annotations included), converted by jaxlib.

    UnsupportedError without jaxlib; HloParseError with jaxlib's message for text that it refuses.
    """
    try:
        jaxlib = importlib.import_module("jaxlib._jax")
    except ImportError as error:
        raise UnsupportedError(
            f"{file}: this is StableHLO text, which is converted through the jax extra "
            '(pip install "spmd-executor[jax]"); or write HLO text with jax.jit(f).lower(*args).as_text("hlo")'
        ) from error
    try:
        computation = jaxlib.mlir.mlir_module_to_xla_computation(
            text, use_tuple_args=False, return_tuple=False
        )
    except Exception as error:  # jaxlib raises its own types for what MLIR refuses
        raise HloParseError(f"{file}: jaxlib cannot convert this StableHLO: {error}") from error
    return parse_proto(computation.as_serialized_hlo_module_proto(), file)


def from_jax(function: Lowerable, *args: Any, **kwargs: Any) -> HloModule:
    """The module that ``function`` (from ``jax.jit``) lowers to for these arguments, before optimization.

    Arguments may be arrays or ``jax.ShapeDtypeStruct``. SpmdError where ``function`` cannot be lowered.
    """
    if not hasattr(function, "lower"):
        raise SpmdError(f"expected a function from jax.jit, found {type(function).__name__}")
    computation = function.lower(*args, **kwargs).compiler_ir(dialect="hlo")
    return parse_proto(computation.as_serialized_hlo_module_proto(), "<jax>")
