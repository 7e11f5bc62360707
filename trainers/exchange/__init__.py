"""Exchanges; built by trainers/exchange/build.py."""
