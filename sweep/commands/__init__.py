"""What `python -m sweep` can do, a module each: `arguments(parser)` says what may be typed, `run(options)` does it."""
