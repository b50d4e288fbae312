"""Programs on GPUs: a plan made of thunks, a driver that carries it out. Nothing here imports CuPy but ``cuda``."""
