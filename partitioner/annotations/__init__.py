"""What the module says of shardings: annotations, manual regions, the entry's boundary."""
