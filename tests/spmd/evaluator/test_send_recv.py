"""send and recv between devices in lock step."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.errors import CollectiveTimeoutError, UnsupportedError

PAIRS = "frontend_attributes={_xla_send_recv_source_target_pairs={%s}}"
PASS_ON = """x = f32[2] parameter(0) t = token[] after-all()
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1, {pairs}
  sd = token[] send-done(s), channel_id=1, {pairs}
  r = (f32[2], u32[], token[]) recv(t), channel_id=1, {pairs}
  rd = (f32[2], token[]) recv-done(r), channel_id=1, {pairs}
  ROOT y = f32[2] get-tuple-element(rd), index=0"""


def shards(n):
    return [[np.array([d, 10 * d], np.float32)] for d in range(n)]


def test_a_ring_passes_values_on(run_devices):
    """All send before anyone receives: a send must not wait."""
    body = PASS_ON.replace("{pairs}", PAIRS % "{0,1},{1,2},{2,0}")
    got = run_devices(body, shards(3), header=", num_partitions=3")
    assert [g[0].tolist() for g in got] == [[2, 20], [0, 0], [1, 10]]


def test_those_outside_the_pairs_get_zeros(run_devices):
    body = PASS_ON.replace("{pairs}", PAIRS % "{2,1}")
    got = run_devices(body, shards(3), header=", num_partitions=3")
    assert [g[0].tolist() for g in got] == [[0, 0], [2, 20], [0, 0]]


def test_pairs_name_partitions_of_each_replica(run_devices):
    body = PASS_ON.replace("{pairs}", PAIRS % "{0,1},{1,0}")
    got = run_devices(body, shards(4), header=", num_partitions=2, replica_count=2")
    assert [g[0].tolist() for g in got] == [[1, 10], [0, 0], [3, 30], [2, 20]]


def test_a_message_that_never_comes_is_named(run_devices):
    body = PASS_ON.replace("{pairs}", PAIRS % "{0,1}").replace(
        "recv-done(r), channel_id=1", "recv-done(r), channel_id=2"
    )
    with pytest.raises(
        CollectiveTimeoutError, match=r"device 1 waits at rd \(recv-done\) for a message"
    ):
        run_devices(body, shards(2), header=", num_partitions=2")


def test_transfers_with_the_host_are_refused(run_devices):
    body = """x = f32[2] parameter(0) t = token[] after-all()
      s = (f32[2], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true
      ROOT sd = token[] send-done(s), channel_id=1, is_host_transfer=true"""
    with pytest.raises(UnsupportedError, match="with the host"):
        run_devices(body, shards(1))
