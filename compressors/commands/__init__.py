"""The commands of `python -m compressors`: list, show, check and bench. No module in here is a method."""
