"""Kernels compiled by numba, for tensors in the memory of the processor.

Modules here and in `kernels.reference` (plain torch, any device) and `kernels.cuda` (Triton) that have
the same name have the same functions, which take torch tensors, give the same bits, and say in the
reference what they compute.
"""
