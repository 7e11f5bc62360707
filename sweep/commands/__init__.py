"""The commands of `python -m sweep`, a module each: `add_arguments(parser)`, and `run(options)` -> exit status."""
