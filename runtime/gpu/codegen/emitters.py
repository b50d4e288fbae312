"""The functions that emit kernel records for a GPU, by kind. Importing ``ptx_module`` fills the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from runtime.gpu.codegen.launch import KernelSource, PtxTarget
from runtime.program.kernel import Kernel
from runtime.program.strides import StridedView


@dataclass(frozen=True, slots=True)
class GpuArrays:
    """How the arrays of a kernel lie, and where it is to run."""

    operands: tuple[StridedView, ...]
    results: tuple[StridedView, ...]
    scratch: tuple[StridedView, ...]
    target: PtxTarget


#: Launches one after the other; None where there is no form for such arrays.
Sources: TypeAlias = tuple[KernelSource, ...] | None

K = TypeVar("K", bound=Kernel)
_FORMS: dict[type[Kernel], Callable[..., Sources]] = {}


def gpu_form(
    kind: type[K],
) -> Callable[[Callable[[K, GpuArrays], Sources]], Callable[[K, GpuArrays], Sources]]:
    """Decorator: this function says what runs on a GPU for records of ``kind``."""

    def decorator(form: Callable[[K, GpuArrays], Sources]) -> Callable[[K, GpuArrays], Sources]:
        if kind in _FORMS:
            raise ValueError(f"{kind.__name__} has two forms for a GPU")
        _FORMS[kind] = form
        return form

    return decorator


def sources(kernel: Kernel, arrays: GpuArrays) -> Sources:
    """None: this record has no form for a GPU."""
    form = _FORMS.get(type(kernel))
    return None if form is None else form(kernel, arrays)


def kinds_with_form() -> tuple[type[Kernel], ...]:
    return tuple(_FORMS)
