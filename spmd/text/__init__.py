"""HLO text: reading, writing, and the small languages inside it (shapes, shardings, literals, Shardy)."""
