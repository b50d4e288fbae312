"""Caches of compilation: programs and machine code in a folder of the user's."""

from __future__ import annotations

#: "off": compile every program afresh. Machine code is looked for all the same: see SPMD_OBJECT_CACHE.
PROGRAM_CACHE_VARIABLE = "SPMD_PROGRAM_CACHE"

HELP = (
    "A program that was compiled before with the same options is taken from the user's cache folder "
    f"(~/.cache/spmd-executor); {PROGRAM_CACHE_VARIABLE}=off compiles afresh."
)
