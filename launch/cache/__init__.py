"""Caches of compilation: programs and machine code in a folder of the user's."""

from __future__ import annotations

#: If the variable is "off", every program is compiled again. Machine code is still taken from its cache: see
#: SPMD_OBJECT_CACHE.
PROGRAM_CACHE_VARIABLE = "SPMD_PROGRAM_CACHE"

HELP = (
    "A program that was compiled before with the same options is taken from the user's cache folder "
    f"(~/.cache/spmd-executor); {PROGRAM_CACHE_VARIABLE}=off compiles afresh."
)
