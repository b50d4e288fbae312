"""Modules that XLA's compilers take, though a stricter reading of HLO would refuse them, and what is refused instead."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from spmd.errors import ShapeError, UnsupportedError, VerificationError
from spmd.evaluator import evaluate
from spmd.text.parser import parse_module
from spmd.verifier import verify

SUM = "sum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT r = f32[] add(x, y)\n}\n"


def entry(*lines: str, header: str = "HloModule t") -> str:
    return f"{header}\n{SUM}\nENTRY e {{\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"


PIPELINED = """HloModule t
cond {
  p = ((f32[4], u32[], token[])) parameter(0)
  ROOT forever = pred[] constant(true)
}
body {
  p = ((f32[4], u32[], token[])) parameter(0)
  before = (f32[4], u32[], token[]) get-tuple-element(p), index=0
  got = (f32[4], token[]) recv-done(before), channel_id=1
  none = token[] after-all()
  next = (f32[4], u32[], token[]) recv(none), channel_id=1
  ROOT out = ((f32[4], u32[], token[])) tuple(next)
}
ENTRY e {
  none = token[] after-all()
  first = (f32[4], u32[], token[]) recv(none), channel_id=1
  init = ((f32[4], u32[], token[])) tuple(first)
  loop = ((f32[4], u32[], token[])) while(init), condition=cond, body=body
  last = (f32[4], u32[], token[]) get-tuple-element(loop), index=0
  ROOT got = (f32[4], token[]) recv-done(last), channel_id=1
}
"""

TAKEN = {
    "a receive that travels through a loop": PIPELINED,
    "the same, scheduled": PIPELINED.replace("HloModule t", "HloModule t, is_scheduled=true"),
    "groups of a mode whose count the header does not say": entry(
        "a = f32[4] parameter(0)",
        "ROOT r = f32[4] all-reduce(a), replica_groups={{0,1},{2,3}}, to_apply=sum",
        header="HloModule t, num_partitions=4",
    ),
    "a gather of so many as its result says": entry(
        "a = f32[4] parameter(0)",
        "ROOT r = f32[8] all-gather(a), dimensions={0}, replica_groups={}",
        header="HloModule t, is_scheduled=true, num_partitions=1",
    ),
    "a permute between partitions that are not counted": entry(
        "a = f32[4] parameter(0)",
        "ROOT r = f32[4] collective-permute(a), source_target_pairs={{0,3},{3,0}}",
        header="HloModule t, is_scheduled=true",
    ),
    "an array before a token": entry("a = f32[4] parameter(0)", "ROOT t = token[] after-all(a)"),
    "a token that is sent": entry(
        "a = f32[4] parameter(0)",
        "t = token[] after-all()",
        "s = (token[], u32[], token[]) send(t, a), channel_id=1",
        "ROOT d = token[] send-done(s), channel_id=1",
    ),
    "an exchange of one operand": entry(
        "a = f32[4] parameter(0)", "ROOT r = (f32[4]) all-to-all(a), replica_groups={{0}}"
    ),
    "an alias of other dimensions": entry(
        "a = f32[2,3] parameter(0)",
        "ROOT r = f32[6] reshape(a)",
        header="HloModule t, input_output_alias={ {}: (0, {}) }",
    ),
    "a custom call of no name": entry(
        'ROOT c = f32[2] custom-call(), custom_call_target=""',
    ),
    "a bitcast into the padding of a tile": entry(
        "a = s32[6]{0:T(128)} parameter(0)", "ROOT b = s32[1]{0:T(128)} bitcast(a)"
    ),
    "a bitcast of tiles along two dimensions": entry(
        "a = f32[320,8,128]{2,1,0:T(8,128)} parameter(0)",
        "ROOT b = f32[313,1024]{1,0:T(8,128)} bitcast(a)",
    ),
    "outfed data with shardings of its own": entry(
        "a = (f32[4], f32[2]) parameter(0)",
        "t = token[] after-all()",
        "ROOT o = token[] outfeed(a, t), outfeed_shape=(f32[4], f32[2]), "
        "sharding={{replicated}, {maximal device=0}}",
    ),
}


@pytest.mark.parametrize("what", TAKEN)
def test_taken(what: str) -> None:
    verify(parse_module(TAKEN[what]))


REFUSED = {
    "0..1": entry(
        "a = f32[4] parameter(0)",
        "ROOT r = f32[4] all-reduce(a), replica_groups={{0,5}}, to_apply=sum",
    ),
    "must not be negative": entry(
        "a = f32[4] parameter(0)",
        "ROOT r = f32[4] collective-permute(a), source_target_pairs={{0,-3}}",
    ),
    "the output is f32": entry(
        "a = f32[2,3] parameter(0)",
        "ROOT r = f32[2,2] slice(a), slice={[0:2], [0:2]}",
        header="HloModule t, input_output_alias={ {}: (0, {}) }",
    ),
    "number of bits": entry(
        "a = s32[130]{0:T(128)} parameter(0)", "ROOT b = s32[1]{0:T(128)} bitcast(a)"
    ),
    "do not make up one another": entry(
        "a = f6e2m3fn[4] parameter(0)", "ROOT b = u2[4,3] bitcast-convert(a)"
    ),
    "must complete a copy-start": entry(
        "a = (f32[2], f32[2], u32[]) parameter(0)",
        "t = ((f32[2], f32[2], u32[])) tuple(a)",
        "g = (f32[2], f32[2], u32[]) get-tuple-element(t), index=0",
        "ROOT d = f32[2] copy-done(g)",
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    with pytest.raises(VerificationError) as caught:
        verify(parse_module(REFUSED[message]))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "operation",
    [
        "all-reduce(a), replica_groups={{0,1}}, to_apply=sum",
        "collective-permute(a), source_target_pairs={{0,1}}",
    ],
)
def test_ids_that_no_device_has_are_refused_when_it_runs(operation: str) -> None:
    module = parse_module(entry("a = f32[4] parameter(0)", f"ROOT r = f32[4] {operation}"))
    verify(module)
    with pytest.raises(ShapeError, match=r"ids must lie in 0\.\.0, found 1"):
        evaluate(module, np.zeros(4, np.float32))


def test_a_bitcast_into_padding_is_not_evaluated() -> None:
    module = parse_module(TAKEN["a bitcast into the padding of a tile"])
    with pytest.raises(UnsupportedError, match="do not fill the memory of its tiles"):
        evaluate(module, np.zeros(6, np.int32))


def test_elements_of_six_bits_take_a_byte() -> None:
    text = entry("a = f6e3m2fn[4] parameter(0)", "ROOT b = u16[2] bitcast(a)")
    module = parse_module(text)
    verify(module)
    numbers = np.array([1, -2, 28, 0], np.float32).astype(ml_dtypes.float6_e3m2fn)
    (result,) = evaluate(module, numbers)
    np.testing.assert_array_equal(result, numbers.view(np.uint16))


def test_bits_without_their_state() -> None:
    both = entry(
        "s = u64[2] parameter(0)",
        "ROOT r = (u64[2], u32[5]) rng-bit-generator(s), algorithm=rng_three_fry",
    )
    alone = both.replace("(u64[2], u32[5])", "u32[5]")
    state = np.array([7, 9], np.uint64)
    verify(parse_module(alone))
    (_, expected), (found,) = (evaluate(parse_module(text), state) for text in (both, alone))
    np.testing.assert_array_equal(found, expected)


def test_a_reducer_that_returns_a_tuple_of_one() -> None:
    text = entry(
        "a = f32[3,2] parameter(0)",
        "z = f32[] constant(0)",
        "ROOT r = (f32[2]) reduce(a, z), dimensions={0}, to_apply=sum",
    ).replace("ROOT r = f32[] add(x, y)", "s = f32[] add(x, y)\n  ROOT r = (f32[]) tuple(s)")
    module = parse_module(text)
    verify(module)
    (result,) = evaluate(module, np.arange(6, dtype=np.float32).reshape(3, 2))
    np.testing.assert_array_equal(result, [6, 9])
