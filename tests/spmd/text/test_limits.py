"""Small texts that mean something huge: each ends in a module or one SpmdError, within 2 s and little memory."""

from __future__ import annotations

import sys

import pytest

from spmd.errors import HloParseError
from spmd.limits import MAX_ERRORS, MAX_LEAVES, MAX_NESTING
from spmd.text.parser import parse_module
from tests.fuzz.outcome import judge

HEAD = "HloModule m{header}\n\nsum {{\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}}\n\n"
ALL_REDUCE = "b = f32[2,3] all-reduce(a), channel_id=1, use_global_device_ids=true, to_apply=sum, replica_groups="
BIG = "9223372036854775807"


def entry(body: str, header: str = "") -> str:
    return f"{HEAD.format(header=header)}ENTRY e {{\n  a = f32[2,3] parameter(0)\n  {body}\n}}\n"


def chain(line: str, count: int) -> str:
    """``line`` again and again; ``{i}`` is its number, ``{before}`` what the last one defined."""
    return "\n".join(line.format(i=i, before=f"t{i - 1}" if i else "a") for i in range(count))


def reshape(dims: str) -> str:
    return entry(f"b = f32[{dims}] reshape(a)")


TEXTS = {
    "tuples that double": entry(chain("t{i} = tuple({before}, {before})", 200)),
    "tuples in tuples": entry(chain("t{i} = tuple({before})", 20_000)),
    "many wide tuples": entry("t = (" + "f32[]," * 60_000 + "f32[]) parameter(1)\n" + chain("u{i} = copy(t)", 300)),
    "all of two billion devices": entry(ALL_REDUCE + "{}", ", num_partitions=2147483647"),
    "all of their square": entry(ALL_REDUCE + "{}", ", num_partitions=2147483647, replica_count=2147483647"),
    "billions of ids as iota": entry(ALL_REDUCE + "[2,2000000000]<=[4000000000]", ", num_partitions=4"),
    "a million ids as a mesh, often": entry(
        "\n".join(f"b{i} = f32[2,3] all-reduce(a), channel_id=1, use_global_device_ids=true, to_apply=sum, "
                  f"replica_groups=mesh['x'=1024,'y'=1024] {{'y'}}, metadata={{op_name=\"{i}\"}}" for i in range(100))
    ),
    "device lists, often": entry(
        "\n".join(f"b{i} = f32[2,3] negate(a), sharding={{mesh['x'=1024,'y'=1024], device_ids=([1024,1024]T(1,0)), "
                  f"[{{'x'}},{{'y'}}], metadata={{op_name=\"{i}\"}}}}" for i in range(100))
    ),
    "tiles for ten billion devices": entry("b = f32[2,3] negate(a), sharding={devices=[100000,100000]<=[10000000000]}"),
    "a grid of many dimensions": entry(f"b = f32[2,3] negate(a), sharding={{devices=[{','.join([BIG] * 6400)}]<=[4]}}"),
    "rows without elements": entry("b = f32[1000000000,0] constant({})"),
    "sizes whose product nothing holds": reshape(",".join([BIG] * 64)),
    "too many dimensions": reshape(",".join(["1"] * 65)),
    "a window as large as can be": entry(
        f"z = f32[] constant(0)\n b = f32[2,3] reduce-window(a, z), window={{size={BIG}x{BIG} pad={BIG}_{BIG}x0_0}}, to_apply=sum"
    ),
    "padding as large as can be": entry(f"z = f32[] constant(0)\n b = f32[2,3] pad(a, z), padding={BIG}_{BIG}_{BIG}x0_0"),
    "an iota as large as can be": entry(f"b = s32[{BIG},{BIG}] iota(), iota_dimension=0"),
    "an unknown opcode on each line": entry(chain("t{i} = f32[2,3] frob({before})", 20_000)),
    "an open bracket on each line": entry(chain("t{i} = f32[2,3] negate(({before}", 20_000)),
    "an unknown operand first": entry("t0 = f32[2,3] frob(a)\n" + chain("t{i} = f32[2,3] negate({before}", 20_000)),
    "one computation again and again": "f { a = f32[] parameter(0) }\n" * 20_000,
    "callers of callers": "f0 { x = f32[] parameter(0) }\n"
    + "".join(f"f{i} {{ x = f32[] parameter(0)\n y = f32[] call(x), to_apply=f{i - 1}\n ROOT z = f32[] call(y), to_apply=f{i - 1} }}\n" for i in range(1, 2000)),
    "a long name": f"e {{ {'a' * 1_000_000} = f32[] parameter(0) }}",
    "a long name that is missing": f"e {{ a = f32[] negate({'a' * 1_000_000}) }}",
    "an alias of nothing": entry("b = f32[2,3] negate(a)", f", input_output_alias={{ {{{BIG},-5}}: ({BIG}, {{-1}}) }}"),
    "null characters": "HloModule m\0\n\ne { a\0 = f32[] parameter(0) }",
    "a byte order mark": "\ufeffHloModule m\n\ne { a = f32[] parameter(0) }",
    "a no-break space": "e { a =\u00a0f32[] parameter(0) }",
    "other digits": "e { a = f32[\u0663] parameter(\u0663) b = s32[] constant(\u0663) c = f32[] constant(\u0663) }",
    "half of a character": "e { a = f32[] parameter(0), metadata={op_name=\"\ud800\"} }",
}  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="peaks of memory are read from /proc")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_bounded(text: str) -> None:
    outcome = judge(text.encode("utf-8", "surrogatepass"))
    assert not outcome.is_finding, outcome.end
    assert outcome.peak < 200 << 20


def test_errors_are_counted() -> None:
    with pytest.raises(HloParseError) as caught:
        parse_module(
            entry("b = f32[2,3] frob(a)\n" + chain("t{i} = f32[2,3] add(b, {before})", 50))
        )
    assert len(caught.value.errors) == 1  # the others follow from it
    with pytest.raises(HloParseError) as caught:
        parse_module(entry("\n".join(f"t{i} = f32[2,3] frob(a)" for i in range(1000))))
    assert len(caught.value.errors) == MAX_ERRORS
    assert str(caught.value).count("unknown opcode 'frob'") == MAX_ERRORS
    lines = [error.location.line for error in caught.value.errors if error.location]
    assert lines == list(range(11, 11 + MAX_ERRORS))


def test_the_limits_stand_in_the_messages() -> None:
    wide = f"e {{ a = ({'f32[],' * MAX_LEAVES}f32[]) parameter(0) }}"
    deep = f"e {{ a = {'(' * (MAX_NESTING + 1)}f32[]{')' * (MAX_NESTING + 1)} parameter(0) }}"
    for text, limit in ((wide, MAX_LEAVES), (deep, MAX_NESTING)):
        with pytest.raises(HloParseError, match=str(limit)):
            parse_module(text)
