"""Device axes, the order of devices along them, and the devices' coordinates in partitioned programs."""
