"""Target of a program: the machine description, the engine, cores and memory."""
