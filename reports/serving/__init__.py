"""The report of a sweep over HTTP, for `python -m reports serve`."""
