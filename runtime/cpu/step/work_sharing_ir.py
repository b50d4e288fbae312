"""Native code of work sharing: the thread of a device and helpers take the pieces of one thunk.

A *share* is a list of independent pieces, each a list of native calls. The device's thread resets the share, publishes
its address in the worker's OPEN_SHARE word, takes pieces from the front until none is left, and waits for the pieces
that helpers have taken. Helpers take pieces from the back. If all threads are equally fast, each thread thus gets the
same pieces in the next thunk and in the next step, whose data are in its cache.

A thread takes a piece by incrementing CLAIMED, and has got one if the old value was less than COUNT, so front and back
never overlap. A helper that comes late finds no piece, whether or not the share runs again: only the device's thread
resets the share, after every piece of the previous run is done.
"""

from __future__ import annotations

from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.step.in_flight_ir import LOOK_AROUND
from runtime.cpu.step.segment import BACK, CALL_WORDS, CLAIMED, COUNT, DONE, PIECE_WORDS, PIECES
from runtime.cpu.step.spin_wait_ir import give_way

#: Number of polls for the end of the helpers' pieces after which the core is yielded between polls.
_SPIN_LIMIT = 2000

SHARE, HELP = "spmd_share", "spmd_help"


def add_shares(module: Module) -> None:
    """Add the functions of shares to ``module``, which must have those of ``add_in_flight_list``.

    SHARE(share, address of the OPEN_SHARE word or null, table or null) runs a share; the word is null if there are no
    helpers. If a table is given, its collectives in flight are polled between pieces. HELP(address of an OPEN_SHARE
    word) runs one piece of the published share, if there is one, and returns whether it did.
    """
    _add_run_piece(module)
    _add_share(module)
    _add_help(module)


def _add_run_piece(module: Module) -> None:
    f = internal_function(module, "run_piece", "ptr", "i64", attributes="")
    share, number = f.parameters
    piece = share.element("i64", PIECES).element(f"[{PIECE_WORDS} x i64]", number)
    count, calls = piece.word(0), piece.pointer(1)
    with f.loop(count, nonempty=False) as i:
        call = calls.element(f"[{CALL_WORDS} x i64]", i)
        f.call("void", call.pointer(0).name, call.pointer(1))
    share.element("i64", DONE).update("add", 1, "release")
    f.finish()


def _add_share(module: Module) -> None:
    f = internal_function(module, SHARE, "ptr", "ptr", "ptr")
    share, open_share, table = f.parameters
    claimed, back, done = (share.element("i64", word) for word in (CLAIMED, BACK, DONE))
    count = share.word(COUNT)
    is_alone, is_looking = open_share.is_null(), ~table.is_null()
    done.store(0, order="monotonic")
    back.store(0, order="monotonic")
    claimed.store(0, order="release")
    with f.when(~is_alone):
        open_share.store(share.as_int(), order="release")
    with f.repeat(0) as pieces:
        (front,) = pieces.values
        pieces.leave(claimed.update("add", 1, "acq_rel").compared("uge", count))
        f.call("void", "run_piece", share, front)
        with f.when(is_looking):
            f.call("void", LOOK_AROUND, table)
        pieces.again(front + 1)
    with f.when(is_alone):
        f.ret()
    open_share.store(0, order="release")
    with f.repeat(0) as look:
        (turns,) = look.values
        look.leave(done.load(order="acquire").equals(count))
        give_way(f, turns, _SPIN_LIMIT)
        look.again(turns + 1)
    f.finish()


def _add_help(module: Module) -> None:
    f = internal_function(module, HELP, "ptr", result="i1", attributes="")
    where = f.parameters[0].load(order="acquire")
    with f.when(where.differs(0)):
        share = Pointer(f, f.append(f"inttoptr i64 {where} to ptr"))
        claimed, count = share.element("i64", CLAIMED), share.word(COUNT)
        may_be_left = claimed.load(order="monotonic").ult(count)
        with f.when(may_be_left), f.when(claimed.update("add", 1, "acq_rel").ult(count)):
            taken = share.element("i64", BACK).update("add", 1, "monotonic")
            f.call("void", "run_piece", share, (count - taken) - 1)
            f.ret(f.true())
    f.ret(f.false())
    f.finish()
