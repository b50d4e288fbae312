"""Run Triton kernels on the host's memory in Triton's interpreter, which needs neither a GPU nor PyTorch.

    TRITON_INTERPRET=1 python -m tests.runtime.gpu.triton.interpret

The process reads names of folders from its standard input, one a line. A folder has kernel.json and the arrays'
bytes, 0.bin, 1.bin and so on, which are written again once the kernel has run. It answers each with a line: ok, or an
error. Triton decides when it is imported whether it interprets, so tests run this as a process of their own.

Triton 3.9's interpreter multiplies the bits of bf16 numbers in products, and rounds f32 to bf16 towards zero. Both are
corrected here (``correct_bf16``).
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from runtime.gpu.triton.compilation import loaded
from runtime.gpu.triton.kernel import TritonKernel
from tests.paths import ROOT


class Pointer:
    """Pointer to memory, with the methods of a tensor that the interpreter calls. They copy nothing."""

    def __init__(self, memory: np.ndarray, first: int, dtype: str) -> None:
        self._memory, self._first, self.dtype = memory, first, dtype

    def data_ptr(self) -> int:
        return int(self._memory.ctypes.data) + self._first

    def untyped_storage(self) -> Pointer:
        return self

    def cpu(self) -> Pointer:
        return self

    def new_empty(self, *_: object, **__: object) -> Pointer:
        return Pointer(self._memory, self._first, self.dtype)

    def set_(self, *_: object) -> None:
        pass

    def storage_offset(self) -> int:
        return 0

    size = stride = storage_offset

    def copy_(self, other: Pointer) -> None:
        assert other.data_ptr() == self.data_ptr()


class Interpreter(AbstractContextManager["Interpreter"]):
    """A process that interprets kernels."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.gpu.triton.interpret"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={"PATH": "", "PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"},
        )

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def run(
        self, kernel: TritonKernel, memories: Sequence[np.ndarray], firsts: Sequence[int]
    ) -> None:
        """Run all programs of ``kernel`` on arrays whose first elements are at bytes ``firsts`` of ``memories``."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            given = {
                "entry": kernel.entry,
                "text": kernel.text,
                "types": [one.removeprefix("*") for one in kernel.signature],
                "firsts": list(firsts),
                "programs": kernel.programs,
            }
            (folder / "kernel.json").write_text(json.dumps(given))
            for n, memory in enumerate(memories):
                memory.tofile(folder / f"{n}.bin")
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            print(folder, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline().strip()
            assert answer == "ok", f"{answer}\n{kernel.text}"
            for n, memory in enumerate(memories):
                memory[:] = np.fromfile(folder / f"{n}.bin", np.uint8)


def interpret(folder: Path) -> None:
    given = json.loads((folder / "kernel.json").read_text())
    memories = [np.fromfile(folder / f"{n}.bin", np.uint8) for n in range(len(given["types"]))]
    arguments = [
        Pointer(*one) for one in zip(memories, given["firsts"], given["types"], strict=True)
    ]
    function = getattr(loaded(given["text"], folder), given["entry"])
    function[(given["programs"],)](*arguments)
    for n, memory in enumerate(memories):
        memory.tofile(folder / f"{n}.bin")


def correct_bf16() -> None:
    """Have the interpreter multiply bf16 numbers as f32, and round f32 to the nearest bf16 number, as GPUs do."""
    tl: Any = importlib.import_module("triton.language")
    interpreter: Any = importlib.import_module("triton.runtime.interpreter")
    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    create_dot, cast = builder.create_dot, builder.cast_impl

    def widened(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        return handle(x.data.view(ml_dtypes.bfloat16).astype(np.float32), tl.float32)

    def dot(self: Any, a: Any, b: Any, *more: Any) -> Any:
        return create_dot(self, widened(a), widened(b), *more)

    def rounded(self: Any, x: Any, target: Any) -> Any:
        if (x.dtype.scalar, target.scalar) != (tl.float32, tl.bfloat16):
            return cast(self, x, target)
        return handle(x.data.astype(ml_dtypes.bfloat16).view(np.uint16), tl.bfloat16)

    builder.create_dot, builder.cast_impl = dot, rounded


def main() -> None:
    correct_bf16()
    for line in sys.stdin:
        try:
            interpret(Path(line.strip()))
        except Exception as error:  # noqa: BLE001 - the other process raises it
            print(repr(error).replace("\n", " "), flush=True)
        else:
            print("ok", flush=True)


if __name__ == "__main__":
    main()
