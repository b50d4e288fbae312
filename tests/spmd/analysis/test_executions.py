"""Tests of how often computations run in a step."""

from __future__ import annotations

import explain_modules

import spmd
from spmd.analysis.executions import callee_runs, executions, summed_over_callees
from spmd.hlo import Opcode


def test_nested_computations() -> None:
    module = spmd.parse(explain_modules.LOOPED)
    times = {computation.name: count for computation, count in executions(module).items()}
    assert (times["main"], times["body"]) == (1, 5)
    (loop,) = module.entry.with_opcode(Opcode.WHILE)
    assert times[loop.while_condition.name] == 6


CALLERS = """HloModule callers
body { s = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[] get-tuple-element(s), index=1
  y = f32[] add(x, x)
  ROOT t = (s32[], f32[]) tuple(i, y) }
condition { c = (s32[], f32[]) parameter(0)
  z = f32[] get-tuple-element(c), index=1
  most = f32[] constant(9)
  ROOT less = pred[] compare(z, most), direction=LT }
same { a = f32[] parameter(0)
  ROOT b = f32[] add(a, a) }
other { d = f32[] parameter(0)
  ROOT e = f32[] negate(d) }
ENTRY main { p = s32[] parameter(0)
  q = f32[] parameter(1)
  start = (s32[], f32[]) tuple(p, q)
  loop = (s32[], f32[]) while(start), condition=condition, body=body
  r = f32[] get-tuple-element(loop), index=1
  f = f32[] conditional(p, r, r), branch_computations={same, other}
  ROOT g = f32[] call(f), to_apply=same }
"""


def test_what_one_run_of_a_caller_runs() -> None:
    """Trips that nothing tells count as one, branches as if each were taken."""
    entry = spmd.parse(CALLERS).entry
    (loop,), (branch,), (call,) = (
        entry.with_opcode(opcode) for opcode in (Opcode.WHILE, Opcode.CONDITIONAL, Opcode.CALL)
    )
    runs = dict(zip(loop.called_computations, callee_runs(loop), strict=True))
    assert (runs[loop.while_condition], runs[loop.while_body]) == (2, 1)
    assert (callee_runs(branch), callee_runs(call)) == ((1, 1), (1,))
    assert summed_over_callees(branch, [3.0, 5.0]) == 5.0
    assert summed_over_callees(loop, [float(n) for n in runs.values()]) == 5.0
    times = {computation.name: n for computation, n in executions(spmd.parse(CALLERS)).items()}
    assert (times["same"], times["other"], times["condition"]) == (2, 1, 2)


def test_loops_in_loops_run_a_number_that_is_a_float_too() -> None:
    """Twenty of 10^18 trips each: 10^360 were no float."""
    text = """HloModule nested
    condition { c = s32[] parameter(0)
      ROOT goes_on = pred[] constant(true) }
    body0 { s = s32[] parameter(0)
      ROOT copied = s32[] copy(s) }
    """
    trips = f'backend_config={{"known_trip_count":{{"n":"{10**18}"}}}}'
    for level in range(1, 21):
        text += f"""{"ENTRY " if level == 20 else ""}body{level} {{ s = s32[] parameter(0)
          ROOT loop = s32[] while(s), condition=condition, body=body{level - 1}, {trips} }}
        """
    times = {computation.name: n for computation, n in executions(spmd.parse(text)).items()}
    assert (times["body20"], times["body19"]) == (1, 10**18)
    assert float(times["body0"]) == 2.0**63
