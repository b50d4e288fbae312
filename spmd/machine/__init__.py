"""Machine descriptions: the rates of a device and its links, as data for cost models."""
