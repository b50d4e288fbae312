"""Arrays between steps: where they lie, what a step does to them, and what the host is fed."""
