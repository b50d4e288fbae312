"""Functions with variants for vectors of arguments, which LLVM's loop vectorizer calls instead.

The functions are ``weak``, so that no pass inlines them earlier, and the variants are external, so that no pass drops
them; ``Passes.run`` reverts both.
"""

from __future__ import annotations

#: Attribute of functions that have variants for vectors of arguments (LLVM's Vector Function ABI).
VARIANTS = "vector-function-abi-variant"
#: Numbers of arguments of variants, at most as many as a register holds.
LANES = (8, 16)
#: Attributes of a function without side effects whose result depends on its arguments only.
PURE = "nounwind willreturn memory(none)"


def variant(name: str, lanes: int) -> str:
    """Return the name of the variant of function ``name``."""
    return f"{name}_{lanes}"


def with_variants(name: str) -> str:
    """Return the attribute of function ``name`` of one argument that lists its variants."""
    listed = ",".join(f"_ZGV_LLVM_N{n}v_{name}({variant(name, n)})" for n in LANES)
    return f'"{VARIANTS}"="{listed}"'
