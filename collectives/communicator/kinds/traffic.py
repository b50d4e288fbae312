"""Traffic of a kind of collective on links, from which ``collectives.cost`` prices rings, trees and others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LinkTraffic:
    """Facts about the bytes that members exchange, S in all (``Collective.exchanged_bytes``).

    algorithms: those that serve the kind besides "one-shot", in which each member sends to each. rounds: passes of the
    data around the group; an all-reduce is a reduce-scatter and an all-gather. sends_full_message: a peer receives S
    bytes in a one-shot exchange, otherwise S / n. from_root: one member alone sends. each_to_each: each pair of members
    has bytes of its own, so that no level of a hierarchy makes them fewer.
    """

    algorithms: tuple[str, ...] = ()
    rounds: int = 1
    sends_full_message: bool = False
    from_root: bool = False
    each_to_each: bool = False

    def sent(self, members: int) -> float:
        """Return the least bytes that each of ``members`` has to send per byte of S."""
        return 1.0 if self.from_root else self.rounds * (members - 1) / members
