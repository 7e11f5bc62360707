"""Gossip: workers exchange with their neighbours in a topology, and mix what they get with what they have."""
