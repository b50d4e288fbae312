"""The groups of passes that launch/pipeline.py names, and dumps of the module between them."""
