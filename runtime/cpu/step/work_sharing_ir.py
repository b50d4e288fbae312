"""Native code by which threads share one thunk: its pieces are taken one by one, by the device's thread and by helpers.

A *share* is pieces that do not depend on each other, each a list of native calls. The device's thread clears it, says
in its worker's OFFER word where it is, takes pieces from the front until none is left, and waits for those that others
have taken. Helpers take from the back: the same piece lies with the same thread in the next thunk, and in the next
step, as far as all are equally fast.

A piece is taken by counting up CLAIMED, and is taken if that was less than COUNT; front and back then never meet. A
helper that comes late finds nothing to take, in whichever run of the share it comes: only the share's thread clears it,
when every piece of the run before is done.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.values import Pointer
from runtime.cpu.kernels.native_call import NativeCall
from runtime.cpu.step.in_flight_ir import LOOK_AROUND
from runtime.cpu.step.spin_wait_ir import give_way

#: Words of a share; what all threads count up lies on lines of its own.
CLAIMED, BACK, DONE, COUNT, PIECES = 0, 1, 8, 16, 17
_LINE_WORDS = 8

#: Words of a piece: calls, and the address of their functions' and records' addresses.
_PIECE_WORDS, _CALL_WORDS = 2, 2

#: Looks at whether the others' pieces are done, each with a pause, before the core is given up before each.
_LOOKS = 2000

SHARE, HELP = "spmd_share", "spmd_help"


class Share:
    """The words of a share. ``address``: of the first."""

    def __init__(self, pieces: Sequence[Sequence[NativeCall]]) -> None:
        """Waits for the code of the calls."""
        calls = [[(c.function, c.record) for c in piece] for piece in pieces]
        self._calls = np.array(
            [word for piece in calls for call in piece for word in call], np.int64
        )
        size = PIECES + _PIECE_WORDS * len(pieces)
        self._words = np.zeros(size + _LINE_WORDS, np.int64)
        start = -self._words.ctypes.data % (8 * _LINE_WORDS) // 8
        words = self._words[start : start + size]
        words[COUNT] = words[CLAIMED] = len(pieces)
        at = self._calls.ctypes.data
        for number, piece in enumerate(calls):
            place = PIECES + _PIECE_WORDS * number
            words[place : place + _PIECE_WORDS] = len(piece), at
            at += 8 * _CALL_WORDS * len(piece)
        self.address = int(words.ctypes.data)


def add_shares(module: Module) -> None:
    """Add functions to a module that has those of flights.

    SHARE: (share, address of the OFFER word, or null: no helpers; the table, or null). HELP: (such an address). Where a
    table is given, what is in flight goes on between pieces. HELP returns whether it has done anything.
    """
    _add_run_piece(module)
    _add_share(module)
    _add_help(module)


def _add_run_piece(module: Module) -> None:
    f = FunctionWriter("run_piece", module=module, parameters=("ptr", "i64"), linkage="internal")
    share, number = f.parameters
    piece = share.element("i64", PIECES).element(f"[{_PIECE_WORDS} x i64]", number)
    count, calls = piece.word(0), piece.pointer(1)
    with f.loop(count, nonempty=False) as i:
        call = calls.element(f"[{_CALL_WORDS} x i64]", i)
        f.call("void", call.pointer(0).name, call.pointer(1))
    share.element("i64", DONE).update("add", 1, "release")
    f.finish()


def _add_share(module: Module) -> None:
    f = FunctionWriter(
        SHARE,
        module=module,
        parameters=("ptr", "ptr", "ptr"),
        linkage="internal",
        attributes="noinline",
    )
    share, offer, table = f.parameters
    claimed, back, done = (share.element("i64", word) for word in (CLAIMED, BACK, DONE))
    count = share.word(COUNT)
    is_alone, is_looking = offer.is_null(), ~table.is_null()
    done.store(0, order="monotonic")
    back.store(0, order="monotonic")
    claimed.store(0, order="release")
    with f.when(~is_alone):
        offer.store(share.as_int(), order="release")
    with f.repeat(0) as pieces:
        (front,) = pieces.values
        pieces.leave(claimed.update("add", 1, "acq_rel").compared("uge", count))
        f.call("void", "run_piece", share, front)
        with f.when(is_looking):
            f.call("void", LOOK_AROUND, table)
        pieces.again(front + 1)
    with f.when(is_alone):
        f.ret()
    offer.store(0, order="release")
    with f.repeat(0) as look:
        (turns,) = look.values
        look.leave(done.load(order="acquire").equals(count))
        give_way(f, turns, _LOOKS)
        look.again(turns + 1)
    f.finish()


def _add_help(module: Module) -> None:
    f = FunctionWriter(HELP, module=module, parameters=("ptr",), result="i1", linkage="internal")
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
