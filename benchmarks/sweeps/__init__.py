"""The parts of benchmarks/sweep.py, a module each: its docstring says what is measured.

A module has `options(parser)`, which adds what the part can be told, and `measure(arguments)`, which gives its
`Finding`s, or its tables as text. Parts that the issue of this launcher sets a limit for carry it: ASKED stands
beside what was measured.
"""
