"""Arrays between steps: their device memory, division into tiles, donation to steps, and infeeds and outfeeds."""
