"""Lanes to a parameter server, which is rank 0 or a rank of its own."""
