"""Checkpoints of a run: what a later attempt goes on from as if nothing had happened (docs/guide/checkpoints.md).

files     what lies in RUN/checkpoint, how it is written so that it is complete or not there, and how it is checked
state     what a worker remembers from step to step, in named entries
keeper    when the workers save and how they do it together, and how they take it back
"""
