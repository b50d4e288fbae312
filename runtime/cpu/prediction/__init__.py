"""How long a compiled program's step takes on a described machine: a sum over its thunks."""
