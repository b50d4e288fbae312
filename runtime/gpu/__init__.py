"""Programs on GPUs: a plan made of thunks, a driver that carries it out. ``cuda`` and ``availability`` import CuPy."""
