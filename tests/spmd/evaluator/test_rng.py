"""Random bits against published test vectors and a scalar transcription of XLA's expansion."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.evaluator.rng import philox4x32, threefry2x32

M32 = 2**32 - 1


def u32(*values):
    return [np.array([v], np.uint32) for v in values]


@pytest.mark.parametrize(
    ("key", "counter", "want"),
    [  # Random123's known answers, threefry2x32 20
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((M32, M32), (M32, M32), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_known_answers(key, counter, want):
    got = threefry2x32(tuple(u32(*key)), tuple(u32(*counter)))
    assert tuple(int(g[0]) for g in got) == want


@pytest.mark.parametrize(
    ("key", "counter", "want"),
    [  # Random123's known answers, philox4x32 10
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((M32, M32), (M32, M32, M32, M32), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(key, counter, want):
    got = philox4x32(tuple(u32(*key)), u32(*counter))
    assert tuple(int(g[0]) for g in got) == want


def threefry(key, counter):
    halves = threefry2x32(
        tuple(u32(key & M32, key >> 32)), tuple(u32(counter & M32, counter >> 32))
    )
    return [int(h[0]) for h in halves]


def bits(run, algorithm, state, shape, kind="u32"):
    n = len(state)
    dims = ",".join(map(str, shape))
    body = (
        f"s = u64[{n}] parameter(0)"
        f" ROOT r = (u64[{n}], {kind}[{dims}]) rng-bit-generator(s), algorithm={algorithm}"
    )
    return run(body, np.array(state, np.uint64))


def test_threefry_splits_the_first_even_dimension(run):
    """Half the shape is counted; the two words of counter (i, j, k) land at 2j and 2j + 1."""
    state = [5 << 32 | 9, 2**32 - 3]
    new_state, got = bits(run, "rng_three_fry", state, (3, 4, 2))
    assert new_state.tolist() == [state[0], state[1] + 12]
    for i, j, k in np.ndindex(3, 2, 2):
        pair = threefry(state[0], state[1] + (i * 2 + j) * 2 + k)
        assert got[i, 2 * j : 2 * j + 2, k].tolist() == pair


def test_threefry_rounds_an_odd_shape_up(run):
    new_state, got = bits(run, "rng_three_fry", [1, 0], (5, 3))
    assert new_state.tolist() == [1, 9]
    for i, j in np.ndindex(5, 3):
        assert int(got[i, j]) == threefry(1, (i // 2) * 3 + j)[i % 2]


def test_threefry_wide_and_narrow(run):
    state, got = bits(run, "rng_three_fry", [7, 1], (3,), "u64")
    assert state.tolist() == [7, 4]
    assert got.tolist() == [threefry(7, 1 + i)[0] | threefry(7, 1 + i)[1] << 32 for i in range(3)]
    wide, narrow = (bits(run, "rng_three_fry", [7, 1], (4,), k)[1] for k in ("u32", "u8"))
    assert narrow.tolist() == [int(w) & 255 for w in wide]
    signed = bits(run, "rng_three_fry", [7, 1], (4,), "s32")[1]
    assert signed.view(np.uint32).tolist() == wide.tolist()


@pytest.mark.parametrize("algorithm", ["rng_philox", "rng_default"])
def test_philox_counts_in_128_bits(run, algorithm):
    state = [3, 2**64 - 1, 4]  # the second counter carries into the high word
    new_state, got = bits(run, algorithm, state, (6,))
    assert new_state.tolist() == [3, 1, 5]
    words = []
    for low, high in ((2**64 - 1, 4), (0, 5)):
        block = philox4x32(tuple(u32(3, 0)), u32(low & M32, low >> 32, high & M32, high >> 32))
        words += [int(b[0]) for b in block]
    assert got.tolist() == words[:6]


def test_philox_two_word_state_reads_the_key_as_high_counter(run):
    new_state, got = bits(run, "rng_philox", [11, 2], (2,), "u64")
    assert new_state.tolist() == [11, 3]
    block = [int(b[0]) for b in philox4x32(tuple(u32(11, 0)), u32(2, 0, 11, 0))]
    assert got.tolist() == [block[0] | block[1] << 32, block[2] | block[3] << 32]


def test_stateful_draws_differ_and_repeat(run):
    body = """a = f32[] constant(2) b = f32[] constant(5) x = f32[1000] rng(a, b), distribution=rng_uniform
      y = f32[1000] rng(a, b), distribution=rng_uniform ROOT t = (f32[1000], f32[1000]) tuple(x, y)"""
    x, y = run(body)
    assert np.all((x >= 2) & (x < 5))
    assert not np.array_equal(x, y)
    assert abs(x.mean() - 3.5) < 0.1
    np.testing.assert_array_equal(run(body)[0], x)
    normal = run(body.replace("rng_uniform", "rng_normal"))[0]
    assert abs(normal.mean() - 2) < 0.5
    assert abs(normal.std() - 5) < 0.5


def test_state_counter_returns_what_was_before(run):
    body = """a = u64[2] rng-get-and-update-state(), delta=5 b = u64[2] rng-get-and-update-state(), delta=1
      ROOT t = (u64[2], u64[2]) tuple(a, b)"""
    assert [v.tolist() for v in run(body)] == [[0, 0], [5, 0]]
