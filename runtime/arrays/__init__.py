"""Arrays between steps: their memory, what a step does to them, and feeds of the host."""
