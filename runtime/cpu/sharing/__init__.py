"""Division of one kernel into pieces, which threads compute concurrently or one thread computes in turn."""
