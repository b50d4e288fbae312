"""Native code for the collectives of a table that were started and not yet waited for: its list of them.

Everything in flight goes on while one of its collectives is waited for: a peer may wait for this device in another one
than this device waits in. Messages between nodes do not go on by themselves: MPI moves them while it is called. So
there are places in a program where native code looks at all that is in flight and goes on at once (LOOK_AROUND;
runtime/cpu/step/polling_points.py says where they are).
"""

from __future__ import annotations

from runtime.cpu.step.table_record import FLIGHT_LIST, IN_FLIGHT, LOOKED

#: Since the last look around, before another one does anything. A look at messages takes 2 to 6 us (MPICH over TCP), so
#: this keeps looks to a tenth of a loop whose trips are shorter.
LOOK_NANOSECONDS = 50_000

TAKE_OFF, LAND, ADVANCE_ALL, LOOK_AROUND = "take_off", "land", "advance_all", "look_around"

FLIGHTS_IR = f"""
define internal void @{TAKE_OFF}(ptr %table, ptr %header) {{
  %flights = getelementptr i64, ptr %table, i64 {IN_FLIGHT}
  %list = call ptr @pointer(ptr %table, i64 {FLIGHT_LIST})
  %flying = load i64, ptr %flights
  %place = getelementptr ptr, ptr %list, i64 %flying
  store ptr %header, ptr %place
  %one_more = add i64 %flying, 1
  store i64 %one_more, ptr %flights
  ret void
}}

define internal void @{LAND}(ptr %table, ptr %header) {{
entry:
  %flights = getelementptr i64, ptr %table, i64 {IN_FLIGHT}
  %list = call ptr @pointer(ptr %table, i64 {FLIGHT_LIST})
  %flying = load i64, ptr %flights
  %one_fewer = sub i64 %flying, 1
  br label %search
search:
  %i = phi i64 [ 0, %entry ], [ %next, %other ]
  %more = icmp ult i64 %i, %flying
  br i1 %more, label %compare, label %end
compare:
  %place = getelementptr ptr, ptr %list, i64 %i
  %one = load ptr, ptr %place
  %found = icmp eq ptr %one, %header
  br i1 %found, label %remove, label %other
other:
  %next = add i64 %i, 1
  br label %search
remove:
  %last_place = getelementptr ptr, ptr %list, i64 %one_fewer
  %last = load ptr, ptr %last_place
  store ptr %last, ptr %place
  store i64 %one_fewer, ptr %flights
  br label %end
end:
  ret void
}}

define internal void @{ADVANCE_ALL}(ptr %table) {{
entry:
  %flying = call i64 @word(ptr %table, i64 {IN_FLIGHT})
  %list = call ptr @pointer(ptr %table, i64 {FLIGHT_LIST})
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %one ]
  %more = icmp ult i64 %i, %flying
  br i1 %more, label %one, label %end
one:
  %header = call ptr @pointer(ptr %list, i64 %i)
  %ignored = call i64 @spmd_advance(ptr %header, i64 0)
  %next = add i64 %i, 1
  br label %look
end:
  ret void
}}

define internal void @{LOOK_AROUND}(ptr %table) noinline {{
entry:
  %flying = call i64 @word(ptr %table, i64 {IN_FLIGHT})
  %none = icmp eq i64 %flying, 0
  br i1 %none, label %end, label %some
some:
  %looked_slot = getelementptr i64, ptr %table, i64 {LOOKED}
  %looked = load i64, ptr %looked_slot
  %now = call i64 @now()
  %ago = sub i64 %now, %looked
  %is_due = icmp uge i64 %ago, {LOOK_NANOSECONDS}
  br i1 %is_due, label %look, label %end
look:
  store i64 %now, ptr %looked_slot
  call void @{ADVANCE_ALL}(ptr %table)
  br label %end
end:
  ret void
}}
"""
"""What becomes of a failure shows in the wait for the collective. The module has WORDS, CLOCK and ENTRY_POINTS.

TAKE_OFF: (table, header of a collective's steps) enters it. LAND: the same, where it is there: it is over.
ADVANCE_ALL: (table) lets everything go on that can. LOOK_AROUND: (table) the same, unless that was done just now.
"""
