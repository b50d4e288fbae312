"""Arrays in files: inputs, outputs, tiles of ranks, and what feeds a program."""
