"""The environment variable that turns the cache of programs off, and what commands say of it."""

from __future__ import annotations

#: "off": compile every program afresh. Machine code is looked for all the same: see SPMD_OBJECT_CACHE.
VARIABLE = "SPMD_PROGRAM_CACHE"

HELP = (
    "Programs that were compiled before, with the same options, are taken from the user's cache folder "
    f"(~/.cache/spmd-executor); {VARIABLE}=off compiles afresh."
)
