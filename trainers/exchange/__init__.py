"""Exchanges that are more than a choice of collectives; built by trainers/exchange/build.py."""
