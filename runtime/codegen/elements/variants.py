"""Functions with variants for vectors of arguments, which LLVM's loop vectorizer calls in their place.

They are ``weak``, so that no pass looks into them before, and variants are seen from outside of the module, so that no
pass drops them; ``Passes.run`` ends both.
"""

from __future__ import annotations

#: The attribute of functions that have variants for vectors of arguments (LLVM's Vector Function ABI).
VARIANTS = "vector-function-abi-variant"
#: Arguments of a variant, at most as many as a register holds.
LANES = (8, 16)
#: Of a function that gives the same for the same arguments, and does nothing else.
PURE = "nounwind willreturn memory(none)"


def variant(name: str, lanes: int) -> str:
    """The name of the one of function ``name``."""
    return f"{name}_{lanes}"


def with_variants(name: str) -> str:
    """The attribute of function ``name`` of one argument that tells them."""
    listed = ",".join(f"_ZGV_LLVM_N{n}v_{name}({variant(name, n)})" for n in LANES)
    return f'"{VARIANTS}"="{listed}"'
