"""Tests of where machine code is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.cache.cache_folder import object_folder


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache/spmd-executor/objects"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/c"}, "/c/spmd-executor/objects"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "c"}, "/home/me/.cache/spmd-executor/objects"),
        ({"HOME": "/home/me", "SPMD_OBJECT_CACHE": "/fast/objects"}, "/fast/objects"),
        ({"HOME": "/home/me", "SPMD_OBJECT_CACHE": "off"}, None),
        ({}, None),
    ],
)
def test_object_folder(environment: dict[str, str], folder: str | None) -> None:
    assert object_folder(environment) == (None if folder is None else Path(folder))
