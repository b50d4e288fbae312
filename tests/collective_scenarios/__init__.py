"""Programs that each rank runs to test a communicator; they raise AssertionError on a wrong result.

Each scenario takes a communicator and looks only at its rank, so the same code runs on threads and under mpirun.
"""

from collective_scenarios import exchanges, group_memory, in_flight, reductions  # noqa: F401 - fill the table
from collective_scenarios.scenario import SCENARIOS

__all__ = ["SCENARIOS"]
