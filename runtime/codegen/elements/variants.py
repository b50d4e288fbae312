"""Functions with variants for vectors of arguments, which LLVM's loop vectorizer calls in their place.

A variant is one to LLVM's passes as long as it is seen from outside of the module; ``Passes.run`` ends that.
"""

from __future__ import annotations

from runtime.codegen.llvm_jit import VARIANTS

#: Arguments of a variant, at most as many as a register holds.
LANES = (8, 16)
#: Of a function that gives the same for the same arguments, and does nothing else.
PURE = "nounwind willreturn memory(none)"


def variant(name: str, lanes: int) -> str:
    """The name of the one of function ``name``."""
    return f"{name}_{lanes}"


def with_variants(name: str, arity: int) -> str:
    """The attribute of function ``name`` that tells them."""
    given = "v" * arity
    listed = ",".join(f"_ZGV_LLVM_N{n}{given}_{name}({variant(name, n)})" for n in LANES)
    return f'"{VARIANTS}"="{listed}"'
