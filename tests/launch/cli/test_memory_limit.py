"""`--memory-limit`: what cannot fit is refused, with what is live at the peak and a limit that does."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from launch.cli import main
from launch.cli.arguments import byte_count
from tests.paths import CASES

MODULE = str(CASES / "mlp_dp2" / "module.hlo")


@pytest.fixture
def smallest(capsys: pytest.CaptureFixture[str]) -> int:
    """The limit that a refusal names, which is below what the program takes without one."""
    assert main(["run", MODULE, "--memory-limit", "1K"]) == 3
    message = capsys.readouterr().err
    assert "the limit is 1,024" in message
    sizes = [int(size.replace(",", "")) for size in re.findall(r": ([\d,]+) bytes$", message, re.M)]
    assert len(sizes) == 5
    assert sizes == sorted(sizes, reverse=True)
    found = re.search(r"--memory-limit (\d+) is enough", message)
    assert found is not None
    return int(found[1])


def test_the_limit_that_a_refusal_names_does(smallest: int) -> None:
    assert main(["run", MODULE, "--memory-limit", str(smallest)]) == 0
    assert main(["run", MODULE, "--memory-limit", str(smallest - 1)]) == 3


def test_every_command_that_compiles_keeps_to_it(
    smallest: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fits, limit = str(smallest), str(smallest - 1)
    saved = str(tmp_path / "f.spmdx")
    assert main(["stats", MODULE, "--json", "--memory-limit", fits]) == 0
    memory = json.loads(capsys.readouterr().out)["memory"]
    whole = memory["arguments"] + memory["outputs"] - memory["aliased"] + memory["temp"]
    assert whole + memory["constants"] == smallest
    assert main(["compile", MODULE, "-o", saved, "--memory-limit", fits]) == 0
    assert main(["run", saved, "--memory-limit", fits]) == 0
    assert main(["run", saved, "--memory-limit", limit]) == 3
    assert main(["stats", MODULE, "--memory-limit", limit]) == 3
    assert main(["compile", MODULE, "-o", saved, "--memory-limit", limit]) == 3


@pytest.mark.parametrize(
    ("text", "size"), [("17", 17), ("2k", 2048), ("1.5G", 3 << 29), ("64MiB", 64 << 20)]
)
def test_sizes(text: str, size: int) -> None:
    assert byte_count(text) == size


@pytest.mark.parametrize("text", ["", "-1", "many", "1T"])
def test_refuses_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        byte_count(text)
