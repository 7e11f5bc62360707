"""Races: runs of a sweep that need the same cores or GPUs take their steps in turns, so that times are comparable.

Machines with neighbours change their speed from minute to minute. Runs that take turns of a few steps each are slowed
down alike, so that the ratio of their times stays what it is on a quiet machine (docs/guide/races.md).
"""
