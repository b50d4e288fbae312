"""On what a program runs: the machine description, the engine, cores and memory."""
