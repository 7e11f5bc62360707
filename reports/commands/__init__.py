"""What `python -m reports` can do, a module each: `add_arguments(parser)` says what may be typed, `run(options)` does it.

`run` returns the exit status, and raises UsageError or OSError for what is told in one line.
"""
