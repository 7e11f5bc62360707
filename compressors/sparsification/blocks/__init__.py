"""Blocks of a matrix, and their transforms."""
