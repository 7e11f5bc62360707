"""Kernels compiled by numba, for tensors in main memory.

The folders `kernels.cpu`, `kernels.reference` (plain torch, any device) and `kernels.cuda` (Triton) have modules of the
same names. Modules of one name have the same functions, which take torch tensors and give the same bits; the docstrings
of `kernels.reference` say what they compute.
"""
