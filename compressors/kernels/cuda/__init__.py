"""Kernels in Triton, for tensors in the memory of a CUDA device.

Modules here have the names and functions of `kernels.cpu` and `kernels.reference`, and give the same
bits. Triton's interpreter (TRITON_INTERPRET=1) runs them on tensors in main memory, slowly.
"""
