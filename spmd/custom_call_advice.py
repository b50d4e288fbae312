"""Advice for a custom call of an unknown target: the location of the called function, and possible remedies."""

from __future__ import annotations

import re

_CALLBACK = re.compile(r"python_\w*callback|callback_\w*python")


def advice_for(target: str) -> str:
    """Return the end of a message about a custom call of ``target`` that cannot be evaluated."""
    if _CALLBACK.search(target):
        return (
            "the Python function that it calls lives in the process that made the module, and no file holds it; "
            "--without-callbacks leaves out calls that return nothing, as those of jax.debug.print, and "
            "register_custom_call(target, evaluate=...) takes a function"
        )
    if target == "CustomSPMDPartitioning":
        return (
            "the partition and lowering functions of custom_partitioning live in the process that made the module, and "
            "no file holds them; lower the function without custom_partitioning, or say what it computes with "
            "register_custom_call(target, evaluate=...)"
        )
    return "register_custom_call(target, evaluate=...) does"
