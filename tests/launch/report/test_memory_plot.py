"""Pictures of memory: blocks that never overlap, a page that carries any name as data, an image where matplotlib is."""

from __future__ import annotations

import json
import re
import struct
import sys
from itertools import combinations
from pathlib import Path

import pytest

import spmd
from launch.cli import main
from launch.report.memory_image import memory_image
from launch.report.memory_page import memory_page
from launch.report.memory_timeline import BlockKind, MemoryTimeline, memory_timeline
from spmd.errors import UnsupportedError

HOSTILE = "</script><script>alert(1)</script>$x^{"
MODULE = f"""HloModule pictured, num_partitions=2, input_output_alias={{ {{0}}: (0, {{}}, may-alias) }}
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
ENTRY main {{
  w = f32[64,64] parameter(0)
  x = f32[64,64] parameter(1)
  y = f32[64,64] sine(x), metadata={{op_name="{HOSTILE}" source_file="step.py" source_line=7}}
  d = f32[64,64] dot(y, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
  g = f32[64,64] all-reduce(d), replica_groups={{{{0,1}}}}, channel_id=1, use_global_device_ids=true, to_apply=sum
  h = f32[64,64] multiply(g, y)
  w2 = f32[64,64] subtract(w, h)
  yt = f32[64,64] transpose(y), dimensions={{1,0}}
  ROOT t = (f32[64,64], f32[64,64], f32[64,64]) tuple(w2, d, yt)
}}
"""


@pytest.fixture(scope="module")
def timeline() -> MemoryTimeline:
    options = spmd.CompileOptions(partitioned=True)
    return memory_timeline(spmd.compile(spmd.parse(MODULE), 2, options=options))


def test_every_value_has_its_block(timeline: MemoryTimeline) -> None:
    """An output is one where it lies in the heap, among temporaries, and so is one that a copy brings there."""
    kinds = {block.name: block.kind for block in timeline.blocks}
    assert kinds["x"] is BlockKind.PARAMETER
    assert kinds["g"] is BlockKind.COLLECTIVE
    assert kinds["d"] is kinds["y.output2"] is BlockKind.OUTPUT
    assert kinds["y"] is BlockKind.TEMPORARY
    sine = next(block for block in timeline.blocks if block.name == "y")
    assert (sine.opcode, sine.op_name, sine.source) == ("sine", HOSTILE, "step.py:7")


def test_blocks_do_not_overlap_and_add_up(timeline: MemoryTimeline) -> None:
    for one, other in combinations(timeline.blocks, 2):
        together = one.start <= other.end and other.start <= one.end
        over = one.offset < other.offset + other.size and other.offset < one.offset + one.size
        assert not (together and over), (one, other)
    for position in range(timeline.end + 1):
        there = [b.size for b in timeline.blocks if b.start <= position <= b.end]
        assert sum(there) == timeline.live[position]
    assert timeline.peak_bytes == max(timeline.live) <= timeline.total
    assert sum(block.size for block in timeline.largest) == timeline.peak_bytes


def test_the_page_stands_alone_and_holds_names_as_data(timeline: MemoryTimeline) -> None:
    page = memory_page(timeline)
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<script") == page.count("</script>") == 2
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    found = json.loads(data)
    assert HOSTILE in [block[8] for block in found["blocks"]]
    assert len(found["live"]) == timeline.end + 1
    assert [kind["name"] for kind in found["kinds"]] == [kind.value for kind in BlockKind]


def test_the_image(timeline: MemoryTimeline) -> None:
    pytest.importorskip("matplotlib")
    image = memory_image(timeline)
    assert image.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", image[16:24])
    assert width > height > 500


def test_without_matplotlib_it_says_what_to_install(
    timeline: MemoryTimeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.collections", None)
    with pytest.raises(UnsupportedError, match=r"spmd-executor\[plot\]"):
        memory_image(timeline)


def test_stats_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, page = tmp_path / "m.hlo", tmp_path / "memory.html"
    module.write_text(MODULE)
    arguments = ["stats", str(module), "--devices", "2", "--json", "--memory-plot"]
    assert main([*arguments, str(page)]) == 0
    assert json.loads(capsys.readouterr().out)["module"] == "pictured"
    assert "pictured on 2 devices" in page.read_text()
    assert main([*arguments, str(tmp_path / "no" / "folder.html")]) == 2
    assert main([*arguments, "memory.gif"]) == 2
