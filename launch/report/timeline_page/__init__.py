"""The timeline of a measured run as one HTML page: page.py puts it together, the scripts draw it."""
