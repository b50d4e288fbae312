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

from runtime.cpu.kernels.native_call import NativeCall
from runtime.cpu.step.in_flight_ir import LOOK_AROUND

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


def _slot(name: str, word: int) -> str:
    return f"  %{name}_slot = getelementptr i64, ptr %share, i64 {word}"


SHARE_IR = f"""
define internal void @run_piece(ptr %share, i64 %number) {{
entry:
  %pieces = getelementptr i64, ptr %share, i64 {PIECES}
  %piece = getelementptr [{_PIECE_WORDS} x i64], ptr %pieces, i64 %number
  %count = call i64 @word(ptr %piece, i64 0)
  %calls = call ptr @pointer(ptr %piece, i64 1)
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %end
one:
  %call = getelementptr [{_CALL_WORDS} x i64], ptr %calls, i64 %i
  %function = call ptr @pointer(ptr %call, i64 0)
  %record = call ptr @pointer(ptr %call, i64 1)
  call void %function(ptr %record)
  %next = add i64 %i, 1
  br label %look
end:
{_slot("done", DONE)}
  %d = atomicrmw add ptr %done_slot, i64 1 release
  ret void
}}

define internal void @{SHARE}(ptr %share, ptr %offer, ptr %table) noinline {{
entry:
{_slot("claimed", CLAIMED)}
{_slot("back", BACK)}
{_slot("done", DONE)}
  %count = call i64 @word(ptr %share, i64 {COUNT})
  %is_offered = icmp ne ptr %offer, null
  %is_looking = icmp ne ptr %table, null
  store atomic i64 0, ptr %done_slot monotonic, align 8
  store atomic i64 0, ptr %back_slot monotonic, align 8
  store atomic i64 0, ptr %claimed_slot release, align 8
  br i1 %is_offered, label %offers, label %take
offers:
  %where = ptrtoint ptr %share to i64
  store atomic i64 %where, ptr %offer release, align 8
  br label %take
take:
  %front = phi i64 [ 0, %entry ], [ 0, %offers ], [ %front_next, %piece ], [ %front_next, %looks ]
  %before = atomicrmw add ptr %claimed_slot, i64 1 acq_rel
  %is_left = icmp ult i64 %before, %count
  br i1 %is_left, label %piece, label %none_left
piece:
  call void @run_piece(ptr %share, i64 %front)
  %front_next = add i64 %front, 1
  br i1 %is_looking, label %looks, label %take
looks:
  call void @{LOOK_AROUND}(ptr %table)
  br label %take
none_left:
  br i1 %is_offered, label %withdraws, label %end
withdraws:
  store atomic i64 0, ptr %offer release, align 8
  br label %look
look:
  %turns = phi i64 [ 0, %withdraws ], [ %turns_next, %wait ]
  %done = load atomic i64, ptr %done_slot acquire, align 8
  %all = icmp eq i64 %done, %count
  br i1 %all, label %end, label %wait
wait:
  call void @give_way(i64 %turns, i64 {_LOOKS})
  %turns_next = add i64 %turns, 1
  br label %look
end:
  ret void
}}

define internal i1 @{HELP}(ptr %offer) {{
entry:
  %where = load atomic i64, ptr %offer acquire, align 8
  %is_none = icmp eq i64 %where, 0
  br i1 %is_none, label %nothing, label %offered
offered:
  %share = inttoptr i64 %where to ptr
{_slot("claimed", CLAIMED)}
{_slot("back", BACK)}
  %count = call i64 @word(ptr %share, i64 {COUNT})
  %seen = load atomic i64, ptr %claimed_slot monotonic, align 8
  %may_be_left = icmp ult i64 %seen, %count
  br i1 %may_be_left, label %claim, label %nothing
claim:
  %before = atomicrmw add ptr %claimed_slot, i64 1 acq_rel
  %is_left = icmp ult i64 %before, %count
  br i1 %is_left, label %piece, label %nothing
piece:
  %taken = atomicrmw add ptr %back_slot, i64 1 monotonic
  %behind = sub i64 %count, %taken
  %number = sub i64 %behind, 1
  call void @run_piece(ptr %share, i64 %number)
  ret i1 1
nothing:
  ret i1 0
}}
"""
"""``SHARE``: (share, address of the OFFER word, or null: no helpers; the table, or null). ``HELP``: (such an address).

Where a table is given, what is in flight goes on between pieces. HELP returns whether it has done anything. The module
has WORDS, WAITS and FLIGHTS_IR.
"""
