"""Functions of the Python interface that answer a mistyped argument by their public names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from spmd.name_suggestions import did_you_mean

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def public_function(
    name: str,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorate a function that users know as ``name``: an unknown option is a TypeError with both names."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        known = inspect.signature(function).parameters

        @functools.wraps(function)
        def called(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            for option in kwargs:
                if option not in known:
                    raise TypeError(f"{name} has no option {option!r}{did_you_mean(option, known)}")
            return function(*args, **kwargs)

        called.__qualname__ = name  # for Python's own messages
        return called

    return decorate
