"""HloPass: one transformation of a module, a value whose fields are its options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import Field, fields
from typing import ClassVar, TypeVar

from spmd.errors import VerificationError
from spmd.hlo.module import HloModule, Stage
from spmd.lazy_dataclass import dataclass
from spmd.machine.description import MachineDescription
from spmd.registry import Registry

#: The stages in which instructions may be added and removed freely.
UNSCHEDULED = (Stage.LOGICAL, Stage.PROPAGATED, Stage.PARTITIONED, Stage.OPTIMIZED)


@dataclass(frozen=True)
class PassResult:
    """Result of a run of a pass: whether the module changed, and ``notes`` for the caller, such as a report."""

    changed: bool
    notes: tuple[object, ...] = ()


#: Metadata of an option that is a MachineDescription or None; a pipeline's text names it.
MACHINE_OPTION = {"is machine": True}


class HloPass(ABC):
    """Base of passes. A subclass is a frozen dataclass, registered by ``register_pass``; its fields are options:

    @register_pass
    @dataclass(frozen=True)
    class DeadCodeElimination(HloPass):
        name: ClassVar[str] = "dead-code-elimination"
        max_rounds: int = 3                         # --passes=dead-code-elimination{max-rounds=1}

    ``accepts``: the stages of the modules that it takes.
    """

    name: ClassVar[str]
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED

    @abstractmethod
    def run(self, module: HloModule) -> bool:
        """Transform ``module`` in place. Returns whether anything changed."""

    def run_with_notes(self, module: HloModule) -> PassResult:
        """Run the pass, and return its notes besides."""
        return PassResult(self.run(module))

    def check_stage(self, module: HloModule) -> None:
        if module.stage not in self.accepts:
            accepted = ", ".join(stage.name.lower() for stage in self.accepts)
            raise VerificationError(
                f"pass {self.name} accepts a module that is {accepted}; {module.name} is {module.stage.name.lower()}"
            )

    def __str__(self) -> str:
        """Return the pass as a pipeline's text spells it: options that differ from their defaults in braces."""
        given = [
            f"{f.name.replace('_', '-')}={option_text(getattr(self, f.name))}"
            for f in option_fields(type(self))
            if getattr(self, f.name) != f.default
        ]
        return f"{self.name}{{{','.join(given)}}}" if given else self.name


def option_fields(kind: type[HloPass]) -> tuple[Field[object], ...]:
    """Return a pass's options; fields without a repr are for callers alone, such as measured durations."""
    return tuple(f for f in fields(kind) if f.repr)  # type: ignore[arg-type]


def option_text(value: object) -> str:
    """Return an option's value as it is written in a pipeline's text: a machine by its name."""
    if value is None:
        return ""
    if isinstance(value, MachineDescription):
        return value.name
    return str(value).lower() if isinstance(value, bool) else str(value)


PASSES: Registry[str, type[HloPass]] = Registry("pass")

P = TypeVar("P", bound=type[HloPass])


def register_pass(kind: P) -> P:
    PASSES.add(kind.name, kind)
    return kind
