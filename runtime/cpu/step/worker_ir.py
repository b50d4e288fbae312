"""Native code of a worker: the tables of one thread's devices, run by turns.

It goes round them, each as far as it comes; a device whose collective waits for another one of the worker costs no more
than a look. Nobody else's progress is waited for by spinning alone: after some rounds in vain the core is given up, and
after some more the worker returns, so that Python can watch the time.
"""

from __future__ import annotations

from enum import IntEnum

from runtime.cpu.step.segment_ir import FUNCTION, Stop
from runtime.cpu.step.table_record import IN_FLIGHT, ROW, STATE, State

#: (worker): put its tables to their first rows. (worker, begin): run its tables, from their first row where ``begin``;
#: otherwise on.
REWIND, DRIVE = "rewind", "spmd_drive"


class WorkerWord(IntEnum):
    """Words of a worker; what different threads write lies on lines of its own."""

    TABLES = 0  # how many
    TABLE_LIST = 1  # address of their addresses
    SPINS = 2  # looks at who is late, each time that the only device is at its wait
    ROUNDS = 3  # rounds in vain before the core is given up, before each further one
    YIELDS = 4  # rounds in vain of that kind before the worker returns
    CURRENT = 5  # the table at which it stopped
    PATIENCE = 6  # looks for the next step before the thread sleeps; it gives up the core before the later ones
    WORKERS = 7  # address of the addresses of the team's workers
    ASKED = 8  # number of the step that is to be run; negative: no more
    EARLIER = 9  # workers before it, whose cores it keeps off
    HELPED = 10  # workers, the first of the team, whose devices' shares it takes pieces of; 0: it has tables of its own
    DONE = 16  # number of the step that has been run
    ASLEEP = 17
    CORE = 18  # on which it began the step
    OFFER = 19  # address of the share of which pieces may be taken
    SEMAPHORE = 24


#: A ``sem_t`` is 32 bytes in glibc and musl.
LANE_WORDS = 32


def worker_word(name: WorkerWord) -> str:
    return f"getelementptr i64, ptr %worker, i64 {name.value}"


LANE_IR = f"""
define internal void @{REWIND}(ptr %worker) {{
entry:
  %count = call i64 @word(ptr %worker, i64 {WorkerWord.TABLES.value})
  %tables = call ptr @pointer(ptr %worker, i64 {WorkerWord.TABLE_LIST.value})
  %current = {worker_word(WorkerWord.CURRENT)}
  store i64 0, ptr %current
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %end
one:
  %table = call ptr @pointer(ptr %tables, i64 %i)
  %row = getelementptr i64, ptr %table, i64 {ROW}
  %state = getelementptr i64, ptr %table, i64 {STATE}
  %flights = getelementptr i64, ptr %table, i64 {IN_FLIGHT}
  store i64 0, ptr %row
  store i64 {State.RUNNING.value}, ptr %state
  store i64 0, ptr %flights
  %next = add i64 %i, 1
  br label %look
end:
  ret void
}}

define i64 @{DRIVE}(ptr %worker, i64 %begin) {{
entry:
  %new = icmp ne i64 %begin, 0
  br i1 %new, label %begins, label %ready
begins:
  call void @{REWIND}(ptr %worker)
  br label %ready
ready:
  %count = call i64 @word(ptr %worker, i64 {WorkerWord.TABLES.value})
  %tables = call ptr @pointer(ptr %worker, i64 {WorkerWord.TABLE_LIST.value})
  %spins = call i64 @word(ptr %worker, i64 {WorkerWord.SPINS.value})
  %rounds = call i64 @word(ptr %worker, i64 {WorkerWord.ROUNDS.value})
  %yields = call i64 @word(ptr %worker, i64 {WorkerWord.YIELDS.value})
  %patience = add i64 %rounds, %yields
  %current = {worker_word(WorkerWord.CURRENT)}
  %first = load i64, ptr %current
  br label %round
round:
  %vain = phi i64 [ 0, %ready ], [ %vain_next, %again ]
  %from = phi i64 [ %first, %ready ], [ 0, %again ]
  br label %look
look: ; where it goes on at a table, those before it are taken for alive, and for having come on
  %i = phi i64 [ %from, %round ], [ %next, %passed ]
  %alive = phi i64 [ %from, %round ], [ %alive_next, %passed ]
  %moved = phi i64 [ %from, %round ], [ %moved_next, %passed ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %table, label %round_over
table:
  %t = call ptr @pointer(ptr %tables, i64 %i)
  %state_slot = getelementptr i64, ptr %t, i64 {STATE}
  %state = load i64, ptr %state_slot
  switch i64 %state, label %elsewhere [
    i64 {State.RUNNING.value}, label %run
    i64 {State.FINISHED.value}, label %over
  ]
run:
  %before = call i64 @word(ptr %t, i64 {ROW})
  %stop = call i64 @{FUNCTION}(ptr %t, i64 %spins)
  switch i64 %stop, label %python [
    i64 {Stop.FINISHED.value}, label %ends
    i64 {Stop.BLOCKED.value}, label %blocked
  ]
ends:
  store i64 {State.FINISHED.value}, ptr %state_slot
  br label %over
blocked:
  %after = call i64 @word(ptr %t, i64 {ROW})
  %on = icmp ne i64 %before, %after
  br label %elsewhere
elsewhere:
  %came_on = phi i1 [ %on, %blocked ], [ false, %table ]
  %has_moved = zext i1 %came_on to i64
  br label %passed
over:
  %ended = phi i64 [ 0, %table ], [ 1, %ends ]
  br label %passed
passed:
  %is_alive = phi i64 [ 1, %elsewhere ], [ 0, %over ]
  %did_move = phi i64 [ %has_moved, %elsewhere ], [ %ended, %over ]
  %alive_next = add i64 %alive, %is_alive
  %moved_next = add i64 %moved, %did_move
  %next = add i64 %i, 1
  br label %look
round_over:
  %none = icmp eq i64 %alive, 0
  br i1 %none, label %finished, label %not_yet
not_yet:
  %moves = icmp ne i64 %moved, 0
  br i1 %moves, label %again, label %in_vain
in_vain:
  %vain_more = add i64 %vain, 1
  %late = icmp ugt i64 %vain_more, %patience
  br i1 %late, label %stuck, label %wait
wait:
  call void @give_way(i64 %vain, i64 %rounds)
  br label %again
again:
  %vain_next = phi i64 [ 0, %not_yet ], [ %vain_more, %wait ]
  br label %round
python:
  store i64 %i, ptr %current
  ret i64 %stop
stuck:
  store i64 0, ptr %current
  ret i64 {Stop.BLOCKED.value}
finished:
  store i64 0, ptr %current
  ret i64 {Stop.FINISHED.value}
}}
"""
"""REWIND and DRIVE, in a module that has SEGMENT_IR."""
