"""Strided views show what NumPy shows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType


def shown(view: StridedView, data: np.ndarray) -> np.ndarray:
    """The array that ``view`` shows of the bytes of ``data``."""
    if view.num_elements == 0:
        return np.zeros(view.dims, view.element_type.numpy)
    buffer = data.tobytes()
    return np.ndarray(view.dims, view.element_type.numpy, buffer, view.offset, view.strides)


@given(st.data())
def test_chains_of_views(data: st.DataObject) -> None:
    dims = tuple(data.draw(st.lists(st.integers(0, 5), max_size=4)))
    view = StridedView.dense(ArrayShape(PrimitiveType.S16, dims))
    array = np.arange(view.num_elements, dtype=np.int16).reshape(dims)
    source = array
    for _ in range(data.draw(st.integers(1, 5))):
        view, array = data.draw(st.sampled_from(STEPS))(data, view, array)
        np.testing.assert_array_equal(shown(view, source), array)


def transposed(
    data: st.DataObject, view: StridedView, array: np.ndarray
) -> tuple[StridedView, np.ndarray]:
    order = tuple(data.draw(st.permutations(range(array.ndim))))
    return view.transpose(order), array.transpose(order)


def sliced(
    data: st.DataObject, view: StridedView, array: np.ndarray
) -> tuple[StridedView, np.ndarray]:
    bounds = []
    for size in array.shape:
        start = data.draw(st.integers(0, size))
        bounds.append((start, data.draw(st.integers(start, size)), data.draw(st.integers(1, 3))))
    starts, limits, steps = (tuple(b[i] for b in bounds) for i in range(3))
    index = tuple(slice(*b) for b in bounds)
    return view.slice(starts, limits, steps), array[(*index, ...)]


def reversed_(
    data: st.DataObject, view: StridedView, array: np.ndarray
) -> tuple[StridedView, np.ndarray]:
    dims = tuple(d for d in range(array.ndim) if data.draw(st.booleans()))
    return view.reverse(dims), np.flip(array, dims)


def broadcast(
    data: st.DataObject, view: StridedView, array: np.ndarray
) -> tuple[StridedView, np.ndarray]:
    size = data.draw(st.integers(0, 3))
    place = data.draw(st.integers(0, array.ndim))
    dims = (*array.shape[:place], size, *array.shape[place:])
    kept = tuple(d for d in range(len(dims)) if d != place)
    return view.broadcast(dims, kept), np.broadcast_to(np.expand_dims(array, place), dims)


def reshaped(
    data: st.DataObject, view: StridedView, array: np.ndarray
) -> tuple[StridedView, np.ndarray]:
    """Merge two neighbours, or split one; stays as it is where no strides say it."""
    if not array.ndim:
        return view, array
    place = data.draw(st.integers(0, array.ndim - 1))
    size = array.shape[place]
    if place + 1 < array.ndim and data.draw(st.booleans()):
        dims = (*array.shape[:place], size * array.shape[place + 1], *array.shape[place + 2 :])
    else:
        factor = data.draw(st.sampled_from([f for f in range(1, size + 1) if size % f == 0] or [1]))
        dims = (*array.shape[:place], size // factor, factor, *array.shape[place + 1 :])
    new = view.reshape(dims)
    return (view, array) if new is None else (new, array.reshape(dims))


STEPS = [transposed, sliced, reversed_, broadcast, reshaped]


def test_a_dense_array_takes_every_reshape() -> None:
    view = StridedView.dense(ArrayShape(PrimitiveType.F32, (2, 3, 4)))
    for dims in [(24,), (6, 4), (2, 12), (4, 6), (1, 24, 1), (3, 2, 2, 2)]:
        new = view.reshape(dims)
        assert new is not None
        assert new.is_dense


def test_a_transpose_does_not_flatten() -> None:
    view = StridedView.dense(ArrayShape(PrimitiveType.F32, (2, 3))).transpose((1, 0))
    assert view.reshape((6,)) is None
    assert not view.is_packed
