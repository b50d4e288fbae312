"""Estimator: what schedulers and simulators ask of a cost model."""

from __future__ import annotations

from typing import Protocol

from spmd.errors import SpmdError
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass


class CostError(SpmdError):
    """An instruction whose time no rule, description or file tells."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """One circle of the machine (an ``Exchange``, by name) during one collective.

    sent: bytes that one device sends over it. seconds: for how long that keeps its port busy.
    """

    exchange: str
    sent: float
    seconds: float


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """Time of one collective whose members all start together, on links that nothing else uses.

    algorithm: "ring", "tree", "one-shot", "hierarchical", or "none" where nothing is sent. latency: of the seconds,
    what is left however few the bytes.
    """

    seconds: float
    algorithm: str
    links: tuple[LinkUse, ...]
    latency: float = 0.0


class Estimator(Protocol):
    """Seconds of instructions of one device's program."""

    def compute(self, instruction: HloInstruction) -> float:
        """Return the seconds of one execution on the device's compute resource, callees included: a fusion is one
        kernel. 0.0 for instructions without a kernel (parameter, constant, tuple, bitcast, starts and dones, ...). Not
        for while, conditional and call, into whose computations the caller walks itself. CostError for a custom call
        that nothing is known of.
        """
        ...

    def collective(self, instruction: HloInstruction) -> CollectiveTime:
        """Return the time of a collective, of its start, or of an async-start that wraps one."""
        ...
