"""What a device did when: recorded step by step, read afterwards."""
