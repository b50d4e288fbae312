"""RooflineEstimator: times of a program's instructions on a described machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from collectives.cost.algorithms import NOTHING, quickest
from collectives.cost.collective_bytes import collective_of, exchanged_bytes, kind_of
from collectives.cost.custom_calls import CallCost
from collectives.cost.device_time import DeviceTime
from collectives.cost.estimator import CollectiveTime
from collectives.cost.placement import Placements
from spmd.analysis.structure import StructuralKeys
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.machine.description import MachineDescription
from spmd.text.stage import device_count


class RooflineEstimator:
    """An Estimator of a program with ``num_partitions`` and ``replica_count`` on ``machine``, at attained rates.

    ``given`` holds costs of custom calls by target. If ``unknown_by_bytes`` is True, custom calls of other, unknown
    targets cost the bytes of their arrays, so that a program can be scheduled; otherwise they raise CostError. The
    program must not be changed while the estimator is in use. ``keys``: of its computations, if they have been read.
    """

    def __init__(
        self,
        machine: MachineDescription,
        num_partitions: int,
        replica_count: int = 1,
        given: Mapping[str, CallCost] | None = None,
        *,
        unknown_by_bytes: bool = False,
        keys: StructuralKeys | None = None,
    ) -> None:
        seen = machine.as_attained()
        self._size_of = machine.byte_size
        self._partitions, self._replicas = num_partitions, replica_count
        self._given, self._by_bytes = given, unknown_by_bytes
        self._keys = keys or StructuralKeys()
        self._device = DeviceTime(
            seen, given or {}, unknown_by_bytes=unknown_by_bytes, keys=self._keys
        )
        self._placements = Placements(seen, num_partitions, replica_count)

    @staticmethod
    def of(
        module: HloModule,
        machine: MachineDescription,
        given: Mapping[str, CallCost] | None = None,
        *,
        unknown_by_bytes: bool = False,
    ) -> RooflineEstimator:
        """Return an estimator for the devices of ``module``: those of its header, shardings or replica groups."""
        partitions = max(module.num_partitions, device_count(module) // module.replica_count)
        return RooflineEstimator(
            machine, partitions, module.replica_count, given, unknown_by_bytes=unknown_by_bytes
        )

    def on(self, machine: MachineDescription) -> RooflineEstimator:
        """Return an estimator of the same program on another machine. Its computations are read once for both."""
        return RooflineEstimator(
            machine,
            self._partitions,
            self._replicas,
            self._given,
            unknown_by_bytes=self._by_bytes,
            keys=self._keys,
        )

    def compute(self, instruction: HloInstruction) -> float:
        return self._device.seconds(instruction)

    def host_copy(self, instruction: HloInstruction) -> CollectiveTime | None:
        return self._device.host_copy(instruction)

    def collective(self, instruction: HloInstruction) -> CollectiveTime:
        """Return the time of the slowest group, including the launch."""
        collective = collective_of(instruction)
        kind = kind_of(collective)
        times = [
            quickest(
                kind.traffic, pattern, exchanged_bytes(collective, pattern.size, self._size_of)
            )
            for pattern in self._placements.of(collective)
        ]
        slowest = max(times, key=lambda time: time.seconds, default=NOTHING)
        if not slowest.links:
            return NOTHING
        begin = self._device.begin
        return replace(slowest, seconds=begin + slowest.seconds, latency=begin + slowest.latency)
