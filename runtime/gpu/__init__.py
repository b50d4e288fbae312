"""Programs on GPUs: plans made from thunks, and a driver that runs them. ``cuda`` and ``availability`` import CuPy."""
