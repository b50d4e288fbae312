"""Copies between the memories of device and host use links of their own, and kernels run meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.cost.roofline import RooflineEstimator
from collectives.simulate.least_step import least_step
from collectives.simulate.result import Simulation
from collectives.simulate.simulate import simulate
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module

H100 = machine_named("dgx-h100")
ON_HOST, ON_DEVICE = "f32[8192,8192]{1,0:S(5)}", "f32[8192,8192]{1,0}"
COPY = 4 * 8192 * 8192 / H100.host_bandwidth + H100.thunk_seconds
OUT = f"({ON_HOST}, {ON_DEVICE}, u32[]) copy-start"
BACK = f"({ON_DEVICE}, {ON_HOST}, u32[]) copy-start"
DOT = "f32[8192,8192] dot({0}, {0}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def run(*lines: str, machine: MachineDescription = H100, **more: str) -> Simulation:
    text = "\n  ".join(lines)
    module = parse_module(
        f"HloModule m, is_scheduled=true, num_partitions=2\n{more.get('before', '')}\nENTRY e {{\n"
        f"  a = {ON_DEVICE} parameter(0)\n  b = {ON_HOST} parameter(1)\n  {text}\n}}"
    )
    return simulate(module, [RooflineEstimator.of(module, machine)])


def product_seconds() -> float:
    return run(f"ROOT y = {DOT.format('a')}").seconds


def test_a_copy_overlaps_with_kernels_until_its_done() -> None:
    found = run(
        f"s = {OUT}(a)",
        f"y = {DOT.format('a')}",
        f"h = {ON_HOST} copy-done(s)",
        f"ROOT r = ({ON_HOST}, {ON_DEVICE}) tuple(h, y)",
    )
    assert product_seconds() < COPY
    assert found.seconds == pytest.approx(COPY)
    assert found.compute == pytest.approx(product_seconds())
    assert found.exposed == pytest.approx(COPY - product_seconds())
    (copy,) = found.collectives
    assert (copy.name, copy.kind, copy.exchanges) == ("s", "copy", ("device to host",))
    assert (copy.bytes, copy.group_size, copy.executions) == (4 * 8192 * 8192, 1, 1)
    assert copy.why.startswith("dependency: ")
    assert found.bound.what == "critical path"


def test_each_direction_has_a_link() -> None:
    both = run(
        f"s = {OUT}(a)",
        f"t = {BACK}(b)",
        f"h = {ON_HOST} copy-done(s)",
        f"d = {ON_DEVICE} copy-done(t)",
        f"ROOT r = ({ON_HOST}, {ON_DEVICE}) tuple(h, d)",
    )
    assert both.seconds == pytest.approx(COPY)
    two = run(
        f"s = {OUT}(a)",
        f"t = {OUT}(a)",
        f"h = {ON_HOST} copy-done(s)",
        f"d = {ON_HOST} copy-done(t)",
        f"ROOT r = ({ON_HOST}, {ON_HOST}) tuple(h, d)",
    )
    assert two.seconds == pytest.approx(2 * COPY, rel=1e-3)


def test_moves_end_where_their_results_are_read() -> None:
    """The products run during both moves: the value comes back before the last of them."""
    products = 12
    lines = ["h = " + ON_HOST + ' custom-call(a), custom_call_target="MoveToHost"']
    last = "a"
    for n in range(products):
        lines.append(f"y{n}.p = {DOT.format(last)}")
        last = f"y{n}.p"
        if n == products // 2:
            lines.append(f'd = {ON_DEVICE} custom-call(h), custom_call_target="MoveToDevice"')
    found = run(*lines, f"ROOT r = {ON_DEVICE} add(d, {last})")
    kernels = products * product_seconds()
    assert kernels / 2 > COPY
    assert found.exposed == 0
    assert found.seconds == pytest.approx(kernels, rel=0.05)
    assert [(one.name, one.exchanges) for one in found.collectives] == [
        ("h", ("device to host",)),
        ("d", ("host to device",)),
    ]


def test_a_move_ends_before_its_computation_does() -> None:
    found = run("ROOT h = " + ON_HOST + ' custom-call(a), custom_call_target="MoveToHost"')
    assert found.seconds == found.exposed == pytest.approx(COPY)


def test_a_synchronous_copy_blocks() -> None:
    found = run(
        f"h = {ON_HOST} copy(a)",
        f"y = {DOT.format('a')}",
        f"ROOT r = ({ON_HOST}, {ON_DEVICE}) tuple(h, y)",
    )
    assert found.seconds == pytest.approx(COPY + product_seconds())
    assert found.collectives[0].why.startswith("blocking: ")


def test_where_host_and_device_have_one_memory_copies_are_kernels() -> None:
    one = replace(H100, host_bandwidth=0.0)
    found = run(f"h = {ON_HOST} copy(a)", f"ROOT y = {ON_HOST} negate(h)", machine=one)
    assert not found.collectives
    assert found.exposed == 0


BODY = f"""
cond {{
  s = (s32[], {ON_DEVICE}, {ON_HOST}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT less = pred[] compare(i, n), direction=LT
}}
body {{
  s = (s32[], {ON_DEVICE}, {ON_HOST}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = {ON_DEVICE} get-tuple-element(s), index=1
  h = {ON_HOST} custom-call(x), custom_call_target="MoveToHost"
  y = {DOT.format("x")}
  ROOT t = (s32[], {ON_DEVICE}, {ON_HOST}) tuple(j, y, h)
}}"""


def test_copies_in_a_loop() -> None:
    found = run(
        "zero = s32[] constant(0)",
        f"t = (s32[], {ON_DEVICE}, {ON_HOST}) tuple(zero, a, b)",
        f"ROOT l = (s32[], {ON_DEVICE}, {ON_HOST}) while(t), condition=cond, body=body",
        before=BODY,
    )
    assert found.collectives[0].executions == 10
    assert found.seconds == pytest.approx(10 * COPY, rel=0.01)


def test_no_order_is_faster_than_the_bound() -> None:
    text = f"""HloModule m, is_scheduled=true
ENTRY e {{
  a = {ON_DEVICE} parameter(0)
  s = {OUT}(a)
  y = {DOT.format("a")}
  h = {ON_HOST} copy-done(s)
  t = {BACK}(h)
  d = {ON_DEVICE} copy-done(t)
  ROOT r = {ON_DEVICE} add(d, y)
}}"""
    module = parse_module(text)
    estimator = RooflineEstimator.of(module, H100)
    found, bound = simulate(module, [estimator]), least_step(module, estimator)
    kernels = found.compute
    assert found.seconds == pytest.approx(2 * COPY + kernels - product_seconds(), rel=0.01)
    assert bound.waiting == pytest.approx(2 * COPY + kernels)
    # In eight pieces the way back begins with the first that is there.
    assert COPY < bound.seconds < 1.25 * COPY
    assert bound.seconds <= found.seconds


def test_devices_do_not_wait_for_the_copies_of_others() -> None:
    """Also if there are so many classes of devices that all count as one."""
    pairs = ",".join(f"{{{n},{n + 1}}}" for n in range(599))
    module = parse_module(f"""HloModule m, is_scheduled=true, num_partitions=600
ENTRY e {{
  a = {ON_DEVICE} parameter(0)
  x = f32[8] parameter(1)
  s = {OUT}(a)
  p = f32[8] collective-permute(x), channel_id=1, source_target_pairs={{{pairs}}}
  h = {ON_HOST} copy-done(s)
  ROOT r = ({ON_HOST}, f32[8]) tuple(h, p)
}}""")
    found = simulate(module, [RooflineEstimator.of(module, H100)])
    assert found.classes == 1
    assert found.seconds == pytest.approx(COPY)
    assert {one.name: one.group_size for one in found.collectives} == {"s": 1, "p": 2}
