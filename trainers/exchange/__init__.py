"""Exchanges, which turn the workers' gradients into their compressed mean; built by trainers/exchange/build.py."""
