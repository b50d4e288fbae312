"""Custom calls of Python functions in JAX's form: ``backend_config={index = 0 : ui64}`` names the function."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from spmd.errors import RunError
from spmd.hlo.host_functions import Callback
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.literal import NDArray
from spmd.ops.attrs import CustomCallAttrs
from spmd.shape import ArrayShape, TokenShape, leaves

_TARGET = re.compile(r"xla_ffi_(partitioned_)?python_(cpu|gpu)_callback")
_INDEX = re.compile(r"\bindex = ([0-9]{1,9}) : ui64")


#: Targets whose function every device calls with its own tiles, whichever device an annotation names.
PARTITIONED_TARGETS = (
    "xla_ffi_partitioned_python_cpu_callback",
    "xla_ffi_partitioned_python_gpu_callback",
)


def is_callback(instruction: HloInstruction) -> bool:
    return callback_index(instruction) is not None


def callback_index(instruction: HloInstruction) -> int | None:
    """Return the number of the Python function that a custom call calls; None for any other instruction."""
    if instruction.opcode is not Opcode.CUSTOM_CALL:
        return None
    if not _TARGET.fullmatch(instruction.attrs_as(CustomCallAttrs).target):
        return None
    found = _INDEX.search(instruction.annotations.backend_config)
    return None if found is None else int(found[1])


@dataclass(frozen=True)
class CallbackSignature:
    """Arguments of a call to its Python function, and the results that it expects.

    Ordered calls take a token before the arrays, and return one before the results. ``results``: the shapes of arrays.
    """

    name: str
    operand_tokens: int
    result_tokens: int
    results: tuple[ArrayShape, ...]


def callback_signature(call: HloInstruction) -> CallbackSignature:
    given = [shape for operand in call.operands for _, shape in leaves(operand.shape)]
    taken = [shape for _, shape in leaves(call.shape)]
    return CallbackSignature(
        call.name,
        sum(isinstance(shape, TokenShape) for shape in given),
        sum(isinstance(shape, TokenShape) for shape in taken),
        tuple(shape for shape in taken if isinstance(shape, ArrayShape)),
    )


def call_back(
    signature: CallbackSignature, function: Callback, operands: Sequence[NDArray]
) -> list[NDArray]:
    """Call ``function`` and return its results. Raises RunError if they do not have the form's shapes.

    The function gets copies, which it may keep. Its exceptions pass through unchanged.
    """
    name, results = signature.name, signature.results
    tokens = (None,) * signature.operand_tokens
    returned = function(*tokens, *(np.array(x) for x in operands))
    given = [np.asarray(x) for x in returned[signature.result_tokens :]]
    if len(given) != len(results):
        raise RunError(f"{name}: the Python function gave {len(given)} arrays, not {len(results)}")
    for array, shape in zip(given, results, strict=True):
        if array.shape != shape.dims or array.dtype != shape.element_type.numpy:
            raise RunError(
                f"{name}: the Python function gave {array.dtype}{list(array.shape)}, "
                f"expected {shape.without_layout()}"
            )
    return given
