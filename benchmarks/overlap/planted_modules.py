"""Programs of two devices for planted trouble (benchmarks/overlap/planted_trouble.py): what they could hide is
known."""

from __future__ import annotations

_HEAD = """HloModule {name}, num_partitions=2

add {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT sum = f32[] add(x, y)
}}

ENTRY main {{
  a = f32[512,512] parameter(0)
"""
_PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_GROUP = "replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add"


def independent(products: int, reductions: int, rows: int) -> str:
    """``products`` in a row beside ``reductions`` over the devices, of parameters of ``rows`` times 512 floats."""
    lines = []
    for number in range(reductions):
        lines += [
            f"  p{number} = f32[{rows},512] parameter({number + 1})",
            f"  n{number} = f32[{rows},512] negate(p{number})",
            f"  g{number} = f32[{rows},512] all-reduce(n{number}), channel_id={number + 1}, {_GROUP}",
        ]
    lines += _products(products)
    results = [f"f32[{rows},512]"] * reductions
    names = ", ".join(f"g{number}" for number in range(reductions))
    lines.append(f"  ROOT out = (f32[512,512], {', '.join(results)}) tuple(c{products}, {names})")
    return _HEAD.format(name="independent") + "\n".join(lines) + "\n}\n"


def _products(count: int) -> list[str]:
    lines = ["  c0 = f32[512,512] negate(a)"]
    for number in range(count):
        lines.append(f"  c{number + 1} = f32[512,512] dot(c{number}, a), {_PLAIN}")
    return lines


def large_between(pairs: int, rows: int) -> str:
    """A reduction whose operand and result are large, and of which little is left, beside products that are large for
    as long as they are needed: all together they need more memory than one after the other.
    """
    lines = [
        f"  p = f32[{rows},512] parameter(1)",
        f"  n = f32[{rows},512] negate(p)",
        f"  g = f32[{rows},512] all-reduce(n), channel_id=1, {_GROUP}",
        "  zero = f32[] constant(0)",
        f"  s = f32[{rows},512] multiply(g, g)",
        "  r = f32[512] reduce(s, zero), dimensions={0}, to_apply=add",
        "  c0 = f32[512,512] negate(a)",
        "  v = f32[512,8192] parameter(2)",
        "  w = f32[8192,512] parameter(3)",
    ]
    for number in range(pairs):
        lines += [
            f"  h{number} = f32[512,8192] dot(c{number}, v), {_PLAIN}",
            f"  c{number + 1} = f32[512,512] dot(h{number}, w), {_PLAIN}",
        ]
    lines.append(f"  ROOT out = (f32[512,512], f32[512]) tuple(c{pairs}, r)")
    return _HEAD.format(name="large_between") + "\n".join(lines) + "\n}\n"
