"""Functions with variants for vectors of arguments, which vectorizers call instead.

The functions are ``weak``, so that no pass inlines them before vectorization, and the variants are external, so that no
pass removes them. ``Passes.run`` reverts both.
"""

from __future__ import annotations

#: Attribute that lists the variants of a function for vectors of arguments (LLVM's Vector Function ABI).
VARIANTS = "vector-function-abi-variant"
#: Lengths of the vectors for which there are variants, at most that of a register.
LANES = (8, 16)
#: Attributes of a function without side effects whose result depends on its arguments only.
PURE = "nounwind willreturn memory(none)"


def variant(name: str, lanes: int) -> str:
    """Return the name of the variant of function ``name`` for vectors of ``lanes`` arguments."""
    return f"{name}_{lanes}"


def with_variants(name: str) -> str:
    """Return the attribute that lists the variants of function ``name``, which has one argument."""
    listed = ",".join(f"_ZGV_LLVM_N{n}v_{name}({variant(name, n)})" for n in LANES)
    return f'"{VARIANTS}"="{listed}"'
