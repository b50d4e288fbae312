"""Replica groups that leave out devices are refused before anything runs or is simulated."""

from __future__ import annotations

import pytest

from launch.cli import main
from spmd.analysis.group_members import require_every_device
from spmd.errors import ShapeError
from spmd.text.parser import parse_module

PROGRAM = """HloModule per_device, num_partitions=2

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY e {
  p = f32[1024] parameter(0)
  ROOT r = f32[1024] all-reduce(p), replica_groups=%s, channel_id=1, use_global_device_ids=true, to_apply=sum
}
"""


@pytest.mark.parametrize("groups", ["{{0,1}}", "[1,2]<=[2]"])
def test_devices_in_no_group_are_refused(groups: str) -> None:
    module = parse_module(PROGRAM % groups)
    require_every_device(module)
    module.num_partitions = 8
    with pytest.raises(ShapeError, match="name 2 of 8 ids, so the program does not run on 8"):
        require_every_device(module)


def test_one_group_of_all_suits_any_number() -> None:
    module = parse_module(PROGRAM % "{}")
    module.num_partitions = 8
    require_every_device(module)


GATHER = """HloModule g
ENTRY e {
  x = u4[1024,512] parameter(0)
  ROOT r = u4[1024,4096] all-gather(x), dimensions={1}, replica_groups=%s
}
"""


def test_a_result_has_as_many_parts_as_groups_have_devices(tmp_path, capsys) -> None:
    module = parse_module(GATHER % "{}")
    with pytest.raises(ShapeError, match="groups have 1 devices, by 1 partitions and 1 replicas"):
        require_every_device(module)
    module.num_partitions = 8
    with pytest.raises(ShapeError, match="512 elements before and 4096 after"):
        require_every_device(module)
    module.num_partitions, module.replica_count = 1, 8
    require_every_device(module)
    path = tmp_path / "g.hlo"
    path.write_text(GATHER % "{}")
    assert main(["simulate", str(path), "--topology", "dgx-h100", "--devices", "8"]) == 2
    assert "dimension 1 has 512 elements" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["run"], ["simulate", "--topology", "dgx-h100"]])
def test_commands_refuse_them_as_bad_input(command: list[str], tmp_path, capsys) -> None:
    path = tmp_path / "per_device.hlo"
    path.write_text(PROGRAM % "{{0,1}}")
    assert main([command[0], str(path), "--devices", "8", *command[1:]]) == 2
    assert "does not run on 8 devices" in capsys.readouterr().err
