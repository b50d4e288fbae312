"""Registered memory of NCCL's double: windows, buffers, and the rules for calls that access them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.collectives.communicator.nccl.nccl_reductions import Call, num_bytes_of


@dataclass
class Registrations:
    """Memory that one end of a communicator has registered, by handle: (is it a window, address, bytes)."""

    of: dict[int, tuple[bool, int, int]] = field(default_factory=dict)

    def place(self, address: int) -> tuple[str, int]:
        """Return how the memory at ``address`` is registered, and its offset there."""
        for is_window, start, num_bytes in self.of.values():
            if start <= address < start + num_bytes:
                return "window" if is_window else "buffer", address - start
        return "none", 0


#: How the memory that one member sends, and that it receives, is registered, each with the offset.
Places = tuple[tuple[str, int], tuple[str, int]]


def require_symmetric(calls: Sequence[Call], places: Sequence[Places]) -> None:
    """Raise AssertionError where members use memory that is registered in different ways, or asymmetric windows.

    An all-gather and a reduce-scatter in place touch their own part alone, which is at another offset on each member.
    """
    kinds = {(send[0], receive[0]) for send, receive in places}
    assert len(kinds) == 1, f"members use memory that is registered in different ways: {kinds}"
    ((of_send, of_receive),) = kinds
    function, part = calls[0].function, num_bytes_of(calls[0].count, calls[0].kind)
    gathers = function == "all_gather" and all(
        call.send == call.receive + i * part for i, call in enumerate(calls)
    )
    scatters = function == "reduce_scatter" and all(
        call.receive == call.send + i * part for i, call in enumerate(calls)
    )
    if of_send == "window" and not gathers:
        assert len({send[1] for send, _ in places}) == 1, f"{function} sends at other offsets"
    if of_receive == "window" and not scatters:
        assert len({receive[1] for _, receive in places}) == 1, f"{function} gets at other offsets"
