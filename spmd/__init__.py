"""spmd: a multi-host HLO compiler and runner.

    module = spmd.load("step.hlo")
    outputs = spmd.evaluate(module, *arrays)                  # reference evaluator
    executable = spmd.compile(module, devices=4)
    outputs = executable.run(*arrays)

Public names are loaded at their first use (SPEC 1), so importing this package imports no compiler; ``__init__.pyi``
holds their types.
"""

from __future__ import annotations

import importlib

#: Read by pyproject.toml. The installed package's metadata has it, too, but takes 30 modules to read.
__version__ = "0.1.0"

#: Public name -> (module, name in that module).
_PUBLIC = {
    "CompileOptions": ("launch.options", "CompileOptions"),
    "Executable": ("runtime.executable", "Executable"),
    "HloModule": ("spmd.hlo.module", "HloModule"),
    "SpmdError": ("spmd.errors", "SpmdError"),
    "compile": ("launch.session", "compile_program"),
    "evaluate": ("spmd.evaluator.evaluator", "evaluate"),
    "evaluate_partitions": ("spmd.evaluator.lockstep", "evaluate_partitions"),
    "from_jax": ("spmd.text.sources.from_jax", "from_jax"),
    "load": ("spmd.text.sources.load", "load"),
    "load_executable": ("launch.session", "load_executable"),
    "parse": ("spmd.text.parser", "parse_module"),
    "partition": ("launch.pipeline", "partition"),
    "register_custom_call": ("spmd.custom_call", "register_custom_call"),
    "verify": ("spmd.verifier.verifier", "verify"),
}
__all__ = sorted(_PUBLIC)  # noqa: PLE0605 - SPEC 1: names come from the table


def __getattr__(name: str) -> object:
    if name == "testing":
        return importlib.import_module("spmd.testing")
    location = _PUBLIC.get(name)
    if location is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(location[0]), location[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
