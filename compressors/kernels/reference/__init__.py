"""The kernels once more in plain torch: slow, wasteful and easy to check against the papers.

Given the same random numbers they give the same bits; the tests compare the two.
"""
