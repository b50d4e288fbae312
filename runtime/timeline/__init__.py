"""Timeline of a device: timestamps are recorded during each step and read afterwards."""
