"""The part of XLA's protocol buffers that this project reads and writes, one class per message."""
