"""What `python -m compressors` does: list, show, check and bench. Nothing in here is a method."""
