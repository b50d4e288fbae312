"""Estimator: the interface of cost models, as schedulers and simulators use it."""

from __future__ import annotations

from typing import Protocol

from spmd.errors import SpmdError
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass


class CostError(SpmdError):
    """Error for an instruction whose time no rule, machine description or file determines."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Use of one exchange of the machine by one collective.

    ``exchange`` is the exchange's name, or that of a direction of the link to the host (``host_link.py``). ``sent`` is
    the number of bytes that one device sends over it, and ``seconds`` the time for which these keep the device's port
    busy.
    """

    exchange: str
    sent: float
    seconds: float


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """Time of one collective whose members all start together, on links that nothing else uses.

    ``algorithm`` is "ring", "tree", "one-shot", "hierarchical", "none" if nothing is sent, or "copy" between host and
    device. ``links`` are the uses of exchanges. ``latency`` is the time that such a collective of few bytes takes, in
    the limit of zero bytes.
    """

    seconds: float
    algorithm: str
    links: tuple[LinkUse, ...]
    latency: float = 0.0


class Estimator(Protocol):
    """A cost model: seconds of the instructions of one device's program."""

    def compute(self, instruction: HloInstruction) -> float:
        """Return the seconds for which one execution of ``instruction`` occupies the device's compute resource.

        A fusion is one kernel, callees included. The result is 0.0 for instructions without a kernel (parameter,
        constant, tuple, bitcast, starts and dones, ...). A while, a conditional or a call must not be passed: the
        caller traverses the computations that they call. Raises CostError for a custom call of unknown cost.
        """
        ...

    def collective(self, instruction: HloInstruction) -> CollectiveTime:
        """Return the time of the collective that ``instruction`` is, starts or wraps in an async-start.

        Raises CostError if there is no such collective.
        """
        ...

    def host_copy(self, instruction: HloInstruction) -> CollectiveTime | None:
        """Return the time for which ``instruction`` copies between the memories of host and device; if it starts an
        asynchronous copy, that of the copy.

        The result is None for other instructions, and if host and device have one memory.
        """
        ...
