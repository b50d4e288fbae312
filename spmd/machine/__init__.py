"""Machine descriptions: what a device and its links can do, as data that cost models read."""
