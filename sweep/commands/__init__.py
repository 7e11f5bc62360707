"""The commands of `python -m sweep`; each module has `add_arguments(parser)` and `run(options)` -> exit status."""
