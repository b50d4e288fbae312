"""Each form of the grammar: read, verified, printed, read again to the same text, and run where it has a value."""

from __future__ import annotations

import numpy as np
import pytest

from spmd.errors import SpmdError, UnsupportedError
from spmd.evaluator import evaluate, evaluate_partitions
from spmd.hlo import Opcode
from spmd.host_feed import fed_shape
from spmd.shape import ArrayShape, array_shapes, leaves, subshape
from spmd.text.parser import parse_module
from spmd.text.printer import print_module
from spmd.verifier import verify
from tests.spmd.op_matrix.examples import EXAMPLES


def arguments(module):
    """A small array per leaf of the entry's parameters: ones on the diagonal, so that matrices factor."""
    shapes = [
        subshape(p.shape, index) for p in module.entry.parameters for index, _ in leaves(p.shape)
    ]
    return [filled(s) for s in shapes if isinstance(s, ArrayShape)]


def filled(shape):
    kind, dims = shape.element_type.numpy, shape.dims
    if len(dims) == 2:
        return np.eye(*dims, dtype=np.float32).astype(kind)
    return np.ones(dims, np.float32).astype(kind)


def fed(module):
    """Items of each infeed."""
    feeds = module.entry.with_opcode(Opcode.INFEED)
    return [tuple(filled(s) for s in array_shapes(fed_shape(feed))) for feed in feeds]


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    example = EXAMPLES[name]
    if example.refused == "parse":
        with pytest.raises(SpmdError):
            verify(parse_module(example.text))
        return
    module = parse_module(example.text)
    verify(module)
    text = print_module(module)
    again = parse_module(text)
    verify(again)
    assert print_module(again) == text
    if example.refused:
        with pytest.raises(UnsupportedError, match=example.refused):
            run(again, example.devices)
    else:
        outputs = run(again, example.devices)
        assert all(isinstance(x, np.ndarray) for x in outputs)
        for one, other in zip(run(module, example.devices), outputs, strict=True):
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()


def run(module, devices):
    if devices == 1:
        return evaluate(module, *arguments(module), infeed=fed(module))
    every = evaluate_partitions(module, [arguments(module) for _ in range(devices)])
    return [x for outputs in every for x in outputs]
