"""One compilation for all ranks: rank 0 compiles, and the other ranks load the program that it sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collectives.communicator.interface import Communicator
from launch.entry import Compiled
from launch.ranks.agreement import agree, from_first
from launch.ranks.rank_executable import RankExecutable
from runtime.executable import Executable
from runtime.interpreter import settings_for_compiling
from runtime.local_devices import Engine
from runtime.saved_program import load_bytes
from spmd.hlo.host_functions import Callback


@settings_for_compiling()
def compile_on_first(
    world: Communicator,
    make: Callable[[], Compiled],
    *,
    record: bool = False,
    reference_every: int = 0,
    engine: Engine | None = None,
    callbacks: Sequence[Callback] = (),
    compiles: bool = True,
) -> RankExecutable:
    """Call ``make`` on rank 0, and load the program that it returns on every rank.

    All ranks must call this function, after they have agreed on what is compiled. record, reference_every, engine:
    those of ``Executable``. callbacks: the Python functions that this rank's module calls. compiles: whether ``make``
    compiles; False if it reads a file, which may contain the machine code that the ranks otherwise compile meanwhile.
    Raises AgreedError on every rank if ``make`` fails on rank 0, or if loading fails on any rank.
    """
    made: list[Executable] = []

    def compiled() -> bytes:
        compiled = make()
        made.append(compiled.executable)
        if compiled.saved is not None:
            return compiled.saved
        # The import is deferred because only rank 0 writes the program.
        from runtime.saved import save_bytes

        return save_bytes(compiled.executable)

    if compiles:
        from runtime.cpu.precompile import begin_fixed_code  # deferred: a file may contain its code

        begin_fixed_code(world.size)
    data = from_first(world, compiled, "compiles")

    def loaded() -> tuple[Executable, dict[str, str]]:
        return made[0] if made else _sent(data), {}

    executable = agree(world, loaded)
    executable.record, executable.reference_every = record, reference_every
    executable.engine = engine
    executable.program.host.callbacks = callbacks
    return RankExecutable.of(executable, world)


def _sent(data: bytes) -> Executable:
    """Load the program that rank 0 has sent. Its thunks are trusted, because a rank of this job has written them."""
    return load_bytes(data, "what rank 0 has compiled", trusted=True)
