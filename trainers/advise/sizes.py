"""The numbers of workers for which the exchanges are measured."""

FEW, MANY = 2, 8
"""What a further payload costs follows from both."""
