"""The commands of `python -m reports`, a module each, with `add_arguments(parser)` and `run(options)`.

`run` returns the exit status. It raises UsageError or OSError for an error that is printed in one line.
"""
