"""Which ranks are late, dead or stopped, and how long others wait for them."""
