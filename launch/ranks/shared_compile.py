"""One compilation for all ranks: rank 0 compiles, the others load what it sends."""

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
    """Call ``make`` on rank 0 and load its result on every rank. All ranks call this; ``make`` is called on rank 0
    only.

    Before it, the ranks have to agree on what is compiled. Raises AgreedError on every rank if compiling fails on
    rank 0 or loading on any. record, reference_every, engine: as of ``Executable``. callbacks: the functions that this
    rank's module calls. compiles: False if ``make`` reads a file, which may contain the code that ranks otherwise make
    while rank 0 compiles.
    """
    made: list[Executable] = []

    def compiled() -> bytes:
        compiled = make()
        made.append(compiled.executable)
        if compiled.saved is not None:
            return compiled.saved
        # Only the first rank needs the writer of modules.
        from runtime.saved import save_bytes

        return save_bytes(compiled.executable)

    if compiles:
        from runtime.cpu.precompile import begin_fixed_code  # whose code a file may have

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
    """Load what rank 0 has made. Its thunks are the job's own, whatever file its module comes from."""
    return load_bytes(data, "what rank 0 has compiled", trusted=True)
