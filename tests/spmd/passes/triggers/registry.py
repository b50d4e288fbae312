"""The triggers: for each pass, a generator of modules that it must change.

A file of this folder is named as its pass's file (transpose_folding.py) and registers one generator:

    @trigger("transpose-folding")
    def modules(rng: Rng) -> HloModule:
        p = Program(rng)                      # programs.py: dice, random shapes and values, a builder
        ...
        return p.module(result)

Every module that it returns, for any seed, must make the pass report a change; see check.py for what else is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import numpy as np

import collectives.passes.all_passes  # noqa: F401 - fills the registry of passes
import launch.pipeline  # noqa: F401 - and adds those of its pipelines
from spmd.hlo import HloModule
from spmd.passes.interface import PASSES, HloPass
from spmd.passes.options import make_pass

Rng = np.random.Generator
Modules = Callable[[Rng], HloModule]


@dataclass(frozen=True)
class Trigger:
    """A generator of modules that set off a pass.

    Attributes:
        options: The pass's, as in a pipeline's text.
        again: The reason why a second run may still find something; "" where it must not.
        finite: The reason why no infinite or NaN inputs are tried; "" where they are.
    """

    name: str
    modules: Modules
    options: str = ""
    again: str = ""
    finite: str = ""

    @property
    def step(self) -> HloPass:
        return make_pass(self.name, self.options)


_TRIGGERS: dict[str, Trigger] = {}


def trigger(
    name: str, *, options: str = "", again: str = "", finite: str = ""
) -> Callable[[Modules], Modules]:
    """Register a generator for the pass ``name``."""

    def decorator(modules: Modules) -> Modules:
        _TRIGGERS[name] = Trigger(name, modules, options, again, finite)
        return modules

    return decorator


def trigger_of(name: str) -> Trigger | None:
    """The trigger of a registered pass; None where nobody wrote one."""
    source = f"{__package__}.{name.replace('-', '_')}"
    if name not in _TRIGGERS and find_spec(source) is not None:
        import_module(source)
    return _TRIGGERS.get(name)


def pass_names() -> list[str]:
    return sorted(PASSES)
