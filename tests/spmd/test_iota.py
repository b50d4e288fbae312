"""Lists of ids that are transposed counts: every one is found, and what is found is what was given."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spmd.device import IotaTile
from spmd.iota import recognise_iota

SIZES = [(), (2,), (3,), (2, 2), (4, 2), (2, 3), (3, 2), (2, 2, 2), (2, 3, 4), (2, 2, 2, 2)]


@pytest.mark.parametrize("sizes", SIZES)
def test_explicit_lists_that_are_iotas_are_recognised(sizes: tuple[int, ...]) -> None:
    n = math.prod(sizes)
    for order in itertools.permutations(range(len(sizes))):
        ids = np.arange(n).reshape(sizes).transpose(order).reshape(-1)
        found = recognise_iota([int(i) for i in ids])
        assert found is not None
        assert IotaTile((n,), *found).ids().tolist() == ids.tolist()


@given(ids=st.sampled_from([4, 6, 8]).flatmap(lambda n: st.permutations(range(n))))
def test_recognised_lists_are_what_was_given(ids: list[int]) -> None:
    found = recognise_iota(ids)
    if found is not None:
        assert IotaTile((len(ids),), *found).ids().tolist() == ids


@pytest.mark.parametrize("ids", [[1, 0], [0, 1, 3, 2], [0, 2, 1, 4, 3, 5], [0, 3, 1, 2]])
def test_other_lists_are_not(ids: list[int]) -> None:
    assert recognise_iota(ids) is None
