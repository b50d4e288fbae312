"""The table of what sets off each identity of the algebraic simplifier, by the identity's name."""

from __future__ import annotations

from collections.abc import Callable

from spmd.hlo import HloInstruction
from tests.spmd.passes.triggers.programs import Program

#: Writes instructions of which the last, which is returned, has a simpler form.
Form = Callable[[Program], HloInstruction]

FORMS: dict[str, Form] = {}


def form(make: Form) -> Form:
    """Register a form under its function's name."""
    FORMS[make.__name__] = make
    return make
