"""infeed and outfeed: what a host feeds to programs on one and several devices, and takes from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spmd
from launch.cli import main
from spmd.errors import RunError
from spmd.literal import NDArray
from tests.launch.data.feed_programs import LOOP, TILES, loop_items, loop_start
from tests.runtime.gpu.doubles.engines import Doubles

#: Two infeeds that no token orders, of which the first has the larger array.
UNORDERED = """HloModule unordered, num_partitions=2
ENTRY e {
  t = token[] after-all()
  f = (f32[8], token[]) infeed(t)
  v = token[] after-all()
  h = (f32[2], token[]) infeed(v)
  x = f32[8] get-tuple-element(f), index=0
  y = f32[2] get-tuple-element(h), index=0
  ROOT r = (f32[2], f32[8]) tuple(y, x)
}
"""
ON_ONE = """HloModule one, num_partitions=2
ENTRY e {
  t = token[] after-all()
  f = (f32[4], token[]) infeed(t), sharding={{maximal device=1}, {maximal device=1}}
  x = f32[4] get-tuple-element(f), index=0
  u = token[] get-tuple-element(f), index=1
  y = f32[4] add(x, x), sharding={devices=[2]<=[2]}
  o = token[] outfeed(y, u), outfeed_shape=f32[4], sharding={maximal device=1}
  p = token[] outfeed(x, o), outfeed_shape=f32[4]
  ROOT r = f32[4] add(y, x), sharding={devices=[2]<=[2]}
}
"""


def same(got: list[Any], want: list[Any]) -> bool:
    return len(got) == len(want) and all(map(np.array_equal, got, want))


def evaluated(text: str, *arrays: NDArray, infeed: list[Any]) -> tuple[list[NDArray], list[Any]]:
    """Outputs, and what outfeeds gave."""
    given: list[Any] = []
    return spmd.evaluate(spmd.parse(text), *arrays, infeed=infeed, outfeed=given), given


@pytest.mark.parametrize("engine", ["cpu", "gpu double"])
def test_each_trip_of_a_loop_takes_the_next_item(engine: str) -> None:
    executable = spmd.compile(spmd.parse(LOOP))
    if engine == "gpu double":
        executable = Doubles(ptx=True).on(executable)
    want, gives = evaluated(LOOP, loop_start(), infeed=loop_items())
    assert len(gives) == 3
    for _ in range(2):
        given: list[Any] = []
        got = executable.run(loop_start(), infeed=iter(loop_items()), outfeed=given)
        assert same(got, want)
        assert same(given, gives)


def test_functions_feed_and_take_tiles() -> None:
    executable = spmd.compile(spmd.parse(LOOP))
    items = loop_items()
    taken = [0, 0]
    rows: list[list[NDArray]] = [[], []]

    def feed(device: int) -> Any:
        whole, number = items[taken[device]]
        taken[device] += 1
        tile = np.zeros((3, 4), np.float32)
        part = whole[3 * device : 3 * device + 3]
        tile[: len(part)] = part
        return tile, number

    (got,) = executable.run(
        loop_start(), infeed=feed, outfeed=lambda device, tile: rows[device].append(tile)
    )
    (want,), gives = evaluated(LOOP, loop_start(), infeed=items)
    assert np.array_equal(got, want)
    joined = [np.concatenate(pair)[:5] for pair in zip(*rows, strict=True)]
    assert same(joined, gives)


def test_an_iterator_goes_on_in_the_next_run() -> None:
    text = "HloModule m\nENTRY e { t = token[] after-all() i = (s32[], token[]) infeed(t) ROOT g = s32[] get-tuple-element(i), index=0 }"
    executable = spmd.compile(spmd.parse(text))
    numbers = iter(np.arange(3, dtype=np.int32))
    assert [int(executable.run(infeed=numbers)[0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RunError, match="no more arrays for the infeed"):
        executable.run(infeed=numbers)


@pytest.mark.parametrize("devices", [1, 2])
def test_infeeds_that_no_token_orders_take_items_in_their_order(devices: int) -> None:
    text = UNORDERED.replace("num_partitions=2", f"num_partitions={devices}")
    items = [np.arange(8, dtype=np.float32), np.arange(2, dtype=np.float32)]
    want, _ = evaluated(text, infeed=items)
    assert same(spmd.compile(spmd.parse(text)).run(infeed=items), want)


def test_infeeds_of_one_device() -> None:
    items = [np.arange(4, dtype=np.float32)]
    want, gives = evaluated(ON_ONE, infeed=items)
    given: list[Any] = []
    got = spmd.compile(spmd.parse(ON_ONE)).run(infeed=items, outfeed=given)
    assert same(got, want)
    assert same(given, gives)


def test_values_that_nothing_uses_are_taken_and_given() -> None:
    text = """HloModule m
ENTRY e {
  a = f32[2] parameter(0)
  t = token[] after-all()
  i = (s32[], token[]) infeed(t)
  o = token[] outfeed(a, t), outfeed_shape=f32[2]
  ROOT r = f32[2] add(a, a)
}
"""
    x = np.ones(2, np.float32)
    fed = iter([np.int32(1), np.int32(2)])
    for run in (
        spmd.compile(spmd.parse(text)).run,
        lambda *a, **k: spmd.evaluate(spmd.parse(text), *a, **k),
    ):
        given: list[Any] = []
        run(x, infeed=fed, outfeed=given)
        assert same(given, [x])
    assert next(fed, None) is None


@pytest.mark.parametrize(
    ("infeed", "message"),
    [
        (None, "but none are given"),
        ([], "no more arrays for the infeed"),
        ([np.zeros((5, 4), np.float32)], "expected 2 arrays for each execution, found 1"),
        (
            [(np.zeros((7, 4), np.float32), np.int32(0))],
            r"expected f32\[.,4\], found float32\[7, 4\]",
        ),
        ([(np.zeros((5, 4)), np.int32(0))], "found float64"),
    ],
)
def test_what_does_not_fit_is_refused(infeed: Any, message: str) -> None:
    with pytest.raises(RunError, match=message):
        spmd.compile(spmd.parse(LOOP)).run(loop_start(), infeed=infeed, outfeed=[])


def test_a_saved_executable_is_fed(tmp_path: Path) -> None:
    spmd.compile(spmd.parse(LOOP)).save(tmp_path / "loop.spmdx")
    given: list[Any] = []
    got = spmd.load_executable(tmp_path / "loop.spmdx").run(
        loop_start(), infeed=loop_items(), outfeed=given
    )
    want, gives = evaluated(LOOP, loop_start(), infeed=loop_items())
    assert same(got, want)
    assert same(given, gives)


def test_one_devices_program_is_fed_tiles_of_whole_items() -> None:
    partitioned = spmd.partition(spmd.parse(LOOP), 2)
    given: list[Any] = []
    options = spmd.CompileOptions(partitioned=True)
    got = spmd.compile(partitioned, options=options).run(
        np.ones((6, 4), np.float32), infeed=loop_items(), outfeed=given
    )
    want, gives = evaluated(LOOP, loop_start(), infeed=loop_items())
    assert np.array_equal(got[0][:5], want[0])
    assert same(given, gives)


# ---- spmd run
@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with LOOP, its inputs, and what it takes: whole and in a file for each device."""
    (tmp_path / "loop.hlo").write_text(LOOP)
    np.savez(tmp_path / "in.npz", arg0=loop_start())
    leaves = [np.asarray(leaf) for item in loop_items() for leaf in item]
    np.savez(tmp_path / "fed.npz", **{f"infeed{k}": leaf for k, leaf in enumerate(leaves)})
    for device in range(2):
        tiles = [np.pad(x, ((0, 1), (0, 0)))[3 * device :][:3] if x.ndim else x for x in leaves]
        np.savez(tmp_path / f"fed.{device}.npz", **{f"infeed{k}": x for k, x in enumerate(tiles)})
    return tmp_path


def run(files: Path, *options: str) -> int:
    command = ["run", str(files / "loop.hlo"), "--inputs", str(files / "in.npz")]
    return main([*command, *(option.format(files) for option in options)])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_files_feed_and_take(files: Path, backend: str, capsys: Any) -> None:
    code = run(
        files, "--infeed", "{}/fed.npz", "--outfeed", "{}/o.npz", "--check", "--backend", backend
    )
    assert code == 0
    assert "all 4 outputs agree" in capsys.readouterr().out, "one output and three outfeeds"
    _, gives = evaluated(LOOP, loop_start(), infeed=loop_items())
    with np.load(files / "o.npz") as stored:
        assert same([stored[f"outfeed{k}"] for k in range(3)], gives)


def test_files_of_tiles_feed_and_take(files: Path) -> None:
    assert run(files, "--infeed", "{}/fed.%r.npz", "--outfeed", "{}/o.%r.npz") == 0
    _, gives = evaluated(LOOP, loop_start(), infeed=loop_items())
    with np.load(files / "o.0.npz") as first, np.load(files / "o.1.npz") as second:
        tiles = [np.concatenate([first[f"outfeed{k}"], second[f"outfeed{k}"]]) for k in range(3)]
    assert same([tile[:5] for tile in tiles], gives)


def test_what_the_files_lack_is_said(files: Path, capsys: Any) -> None:
    assert run(files) == 2
    assert "--infeed F.npz" in capsys.readouterr().err
    assert run(files, "--infeed", "{}/fed.npz", "--steps", "2") == 2
    assert "infeed6" in capsys.readouterr().err
    np.savez(files / "fed.npz", **dict(np.load(files / "fed.npz")), infeed6=np.int32(1))
    assert run(files, "--infeed", "{}/fed.npz") == 0
    assert "no infeed read the last 1 of its arrays" in capsys.readouterr().err


def test_an_outfeed_that_is_wrong_is_found(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from runtime.arrays import host_feed

    keep = host_feed.joined

    def wrong(*args: Any) -> list[Any]:
        values = keep(*args)
        return [values[0], values[1] + 1, values[2]]

    monkeypatch.setattr("runtime.executable.joined", wrong)
    assert run(files, "--infeed", "{}/fed.npz", "--check") == 1
    assert "outfeed1" in capsys.readouterr().out


def test_the_sharding_of_an_outfeed_is_by_its_tiles() -> None:
    (outfeed,) = [
        x for x in spmd.partition(spmd.parse(LOOP), 2).all_instructions() if x.name == "o"
    ]
    assert str(outfeed.sharding) == f"{{{TILES}}}"
    assert outfeed.annotations.frontend("outfeed_global_shape") == "f32[5,4]"
