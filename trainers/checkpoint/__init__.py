"""Checkpoints of a run, from which a later attempt continues as if nothing had happened (docs/guide/checkpoints.md).

files     the files in RUN/checkpoint: written so that a checkpoint is complete or missing, and checked when read
state     a worker's state between two steps, in named entries
keeper    when and how the workers save and restore together
"""
