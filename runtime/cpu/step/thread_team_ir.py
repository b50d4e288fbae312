"""Native code of a team: the workers (worker_ir.py) of one process.

The calling thread runs the first; the others are run by threads that stay in native code from step to step: they spin
for a while for the next one, then sleep on a semaphore. The system likes to wake a thread on the core of the one that
woke it, which is about to spin there: a worker that finds itself on an earlier one's core moves before the step.

Where there are more cores than workers, further workers have no tables: they help the others' devices with what these
share (work_sharing_ir.py) until the step is over.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache

from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.codegen.llvm.pass_pipelines import Passes
from runtime.cpu.step.core_affinity_ir import CORES_IR, KEEP_OFF
from runtime.cpu.step.segment_ir import FUNCTION, SEGMENT_IR, Stop
from runtime.cpu.step.work_sharing_ir import HELP
from runtime.cpu.step.worker_ir import DRIVE, LANE_IR, REWIND, WorkerWord, worker_word


class WorkerStop(IntEnum):
    """Why a call for a worker or a team has returned, beyond a table's ``Stop``."""

    RETIRED = 5  # the worker's thread is to end
    JOINING = 6  # the first worker has finished, others have not


#: Of a helper that has looked for shares for its patience, before each further look.
NAP_MICROSECONDS = 50


class TeamWord(IntEnum):
    """Words of a team."""

    WORKERS = 0  # how many
    LANE_LIST = 1  # address of their addresses
    STEP = 2  # its number
    WORKING = 3  # workers that have tables: the first ones


class TeamCode:
    """Native functions, as ctypes calls them; all return a Stop or a WorkerStop."""

    def __init__(self) -> None:
        self.library = team_library()
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        function = self.library.function
        #: (worker, begin): its tables, from their first row where ``begin``; otherwise on.
        self.drive = function(DRIVE, word, pointer, word)
        #: (worker, at_work): wait for steps and run them, until something needs Python.
        self.serve = function("spmd_serve", word, pointer, word)
        #: (team, begin): a step on all workers.
        self.team = function("spmd_team", word, pointer, word)
        #: (worker): let its thread return RETIRED.
        self.retire = function("spmd_retire", None, pointer)
        self.open_worker = function("spmd_open_worker", None, pointer)


@cache
def team_library() -> NativeLibrary:
    names = (FUNCTION, DRIVE, "spmd_serve", "spmd_team", "spmd_retire", "spmd_open_worker")
    ir = "\n".join([SEGMENT_IR, LANE_IR, CORES_IR, _IR])
    return host_jit().compile(ir, names, passes=Passes.CALL)


@cache
def team_code() -> TeamCode:
    return TeamCode()


_IR = f"""
declare i32 @usleep(i32)
declare i32 @sem_init(ptr, i32, i32)
declare i32 @sem_wait(ptr)
declare i32 @sem_post(ptr)

define void @spmd_open_worker(ptr %worker) {{
  %semaphore = {worker_word(WorkerWord.SEMAPHORE)}
  %r = call i32 @sem_init(ptr %semaphore, i32 0, i32 0)
  ret void
}}

define internal i64 @assist(ptr %worker, i64 %helped) {{
entry: ; returns the step that it has helped with: until that is over on the first worker, or another is asked for
  %asked_slot = {worker_word(WorkerWord.ASKED)}
  %step = load i64, ptr %asked_slot
  %patience = call i64 @word(ptr %worker, i64 {WorkerWord.PATIENCE.value})
  %workers = call ptr @pointer(ptr %worker, i64 {WorkerWord.WORKERS.value})
  %first = call ptr @pointer(ptr %workers, i64 0)
  %over_slot = getelementptr i64, ptr %first, i64 {WorkerWord.DONE.value}
  br label %round
round:
  %vain = phi i64 [ 0, %entry ], [ %vain_next, %again ]
  %asked = load atomic i64, ptr %asked_slot monotonic, align 8
  %is_asked = icmp eq i64 %asked, %step
  br i1 %is_asked, label %due, label %end
due:
  %over = load atomic i64, ptr %over_slot monotonic, align 8
  %is_over = icmp eq i64 %over, %step
  br i1 %is_over, label %end, label %look
look:
  %i = phi i64 [ 0, %due ], [ %next, %one ]
  %done = phi i1 [ false, %due ], [ %done_next, %one ]
  %more = icmp ult i64 %i, %helped
  br i1 %more, label %one, label %looked
one:
  %other = call ptr @pointer(ptr %workers, i64 %i)
  %offer = getelementptr i64, ptr %other, i64 {WorkerWord.OFFER.value}
  %has_helped = call i1 @{HELP}(ptr %offer)
  %done_next = or i1 %done, %has_helped
  %next = add i64 %i, 1
  br label %look
looked:
  br i1 %done, label %again, label %in_vain
in_vain:
  %vain_more = add i64 %vain, 1
  %soon = icmp ult i64 %vain, %patience
  br i1 %soon, label %spin, label %nap
spin:
  call void @pause()
  br label %again
nap:
  %n = call i32 @usleep(i32 {NAP_MICROSECONDS})
  br label %again
again:
  %vain_next = phi i64 [ 0, %looked ], [ %vain_more, %spin ], [ %vain_more, %nap ]
  br label %round
end:
  ret i64 %step
}}

define i64 @spmd_serve(ptr %worker, i64 %at_work) {{
entry:
  %asked_slot = {worker_word(WorkerWord.ASKED)}
  %done_slot = {worker_word(WorkerWord.DONE)}
  %asleep = {worker_word(WorkerWord.ASLEEP)}
  %semaphore = {worker_word(WorkerWord.SEMAPHORE)}
  %patience = call i64 @word(ptr %worker, i64 {WorkerWord.PATIENCE.value})
  %eager = lshr i64 %patience, 1
  %working = icmp ne i64 %at_work, 0
  br i1 %working, label %work, label %idle
idle:
  %done = load i64, ptr %done_slot
  br label %look
look:
  %looks = phi i64 [ 0, %idle ], [ %looks_next, %polite ], [ 0, %sleep ], [ 0, %watch ]
  %asked = load atomic i64, ptr %asked_slot acquire, align 8
  %retired = icmp slt i64 %asked, 0
  br i1 %retired, label %end, label %compare
compare:
  %idles = icmp eq i64 %asked, %done
  br i1 %idles, label %wait, label %called
wait:
  %looks_next = add i64 %looks, 1
  %patient = icmp ult i64 %looks, %patience
  br i1 %patient, label %polite, label %watch
polite:
  call void @give_way(i64 %looks, i64 %eager)
  br label %look
watch:
  store atomic i64 1, ptr %asleep seq_cst, align 8
  %last_look = load atomic i64, ptr %asked_slot seq_cst, align 8
  %still = icmp eq i64 %last_look, %done
  br i1 %still, label %sleep, label %look
sleep:
  %s = call i32 @sem_wait(ptr %semaphore)
  store atomic i64 0, ptr %asleep seq_cst, align 8
  br label %look
called:
  store atomic i64 0, ptr %asleep seq_cst, align 8
  %core = call i64 @note_core(ptr %worker)
  %earlier = call i64 @word(ptr %worker, i64 {WorkerWord.EARLIER.value})
  %workers = call ptr @pointer(ptr %worker, i64 {WorkerWord.WORKERS.value})
  br label %each
each:
  %e = phi i64 [ 0, %called ], [ %e_next, %other ]
  %e_more = icmp ult i64 %e, %earlier
  br i1 %e_more, label %other, label %work
other:
  %e_worker = call ptr @pointer(ptr %workers, i64 %e)
  %e_core = call i64 @core_of(ptr %e_worker)
  %e_next = add i64 %e, 1
  %same = icmp eq i64 %e_core, %core
  br i1 %same, label %crowded, label %each
crowded:
  call void @{KEEP_OFF}(ptr %worker, ptr %workers, i64 %earlier)
  br label %work
work:
  %helped = call i64 @word(ptr %worker, i64 {WorkerWord.HELPED.value})
  %is_helper = icmp ne i64 %helped, 0
  br i1 %is_helper, label %help, label %drive
help:
  %helped_with = call i64 @assist(ptr %worker, i64 %helped)
  store atomic i64 %helped_with, ptr %done_slot release, align 8
  br label %idle
drive:
  %stop = call i64 @{DRIVE}(ptr %worker, i64 0)
  %finished = icmp eq i64 %stop, {Stop.FINISHED.value}
  br i1 %finished, label %report, label %python
report:
  %step = load atomic i64, ptr %asked_slot monotonic, align 8
  store atomic i64 %step, ptr %done_slot release, align 8
  br label %idle
python:
  ret i64 %stop
end:
  ret i64 {WorkerStop.RETIRED.value}
}}

define internal void @ask(ptr %worker, i64 %step) {{
entry:
  %asked_slot = {worker_word(WorkerWord.ASKED)}
  %asleep = {worker_word(WorkerWord.ASLEEP)}
  store atomic i64 %step, ptr %asked_slot seq_cst, align 8
  %sleeps = load atomic i64, ptr %asleep seq_cst, align 8
  %must_wake = icmp ne i64 %sleeps, 0
  br i1 %must_wake, label %wake, label %end
wake:
  %semaphore = {worker_word(WorkerWord.SEMAPHORE)}
  %r = call i32 @sem_post(ptr %semaphore)
  br label %end
end:
  ret void
}}

define void @spmd_retire(ptr %worker) {{
  call void @ask(ptr %worker, i64 -1)
  ret void
}}

define i64 @spmd_team(ptr %team, i64 %begin) {{
entry:
  %count = call i64 @word(ptr %team, i64 {TeamWord.WORKERS.value})
  %workers = call ptr @pointer(ptr %team, i64 {TeamWord.LANE_LIST.value})
  %step_slot = getelementptr i64, ptr %team, i64 {TeamWord.STEP.value}
  %own = call ptr @pointer(ptr %workers, i64 0)
  %new = icmp ne i64 %begin, 0
  br i1 %new, label %begins, label %drive
begins:
  %before = load i64, ptr %step_slot
  %now = add i64 %before, 1
  store i64 %now, ptr %step_slot
  %core = call i64 @note_core(ptr %own)
  br label %prepare
prepare: ; all workers before any runs: a worker looks at others' states
  %p = phi i64 [ 0, %begins ], [ %p_next, %worker_prepared ]
  %p_more = icmp ult i64 %p, %count
  br i1 %p_more, label %worker_prepared, label %ask
worker_prepared:
  %p_worker = call ptr @pointer(ptr %workers, i64 %p)
  call void @{REWIND}(ptr %p_worker)
  %p_next = add i64 %p, 1
  br label %prepare
ask:
  %i = phi i64 [ 1, %prepare ], [ %next, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %drive
one:
  %worker = call ptr @pointer(ptr %workers, i64 %i)
  call void @ask(ptr %worker, i64 %now)
  %next = add i64 %i, 1
  br label %ask
drive:
  %stop = call i64 @{DRIVE}(ptr %own, i64 0)
  %finished = icmp eq i64 %stop, {Stop.FINISHED.value}
  br i1 %finished, label %join, label %python
python:
  ret i64 %stop
join: ; helpers need not be waited for: they have nothing of a share that is not done
  %step = load i64, ptr %step_slot
  %working = call i64 @word(ptr %team, i64 {TeamWord.WORKING.value})
  %rounds = call i64 @word(ptr %own, i64 {WorkerWord.ROUNDS.value})
  %yields = call i64 @word(ptr %own, i64 {WorkerWord.YIELDS.value})
  %patience = add i64 %rounds, %yields
  br label %each
each:
  %e = phi i64 [ 1, %join ], [ %e_next, %come ]
  %e_more = icmp ult i64 %e, %working
  br i1 %e_more, label %other, label %all
other:
  %e_worker = call ptr @pointer(ptr %workers, i64 %e)
  %done_slot = getelementptr i64, ptr %e_worker, i64 {WorkerWord.DONE.value}
  br label %look
look:
  %looks = phi i64 [ 0, %other ], [ %looks_next, %polite ]
  %done = load atomic i64, ptr %done_slot acquire, align 8
  %has_come = icmp eq i64 %done, %step
  br i1 %has_come, label %come, label %wait
come:
  %e_next = add i64 %e, 1
  br label %each
wait:
  %looks_next = add i64 %looks, 1
  %patient = icmp ult i64 %looks, %patience
  br i1 %patient, label %polite, label %late
polite:
  call void @give_way(i64 %looks, i64 %rounds)
  br label %look
late:
  ret i64 {WorkerStop.JOINING.value}
all:
  %over_slot = getelementptr i64, ptr %own, i64 {WorkerWord.DONE.value}
  store atomic i64 %step, ptr %over_slot release, align 8
  ret i64 {Stop.FINISHED.value}
}}
"""
