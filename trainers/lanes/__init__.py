"""Lanes: each is one kind of collective with the message that goes through it."""
