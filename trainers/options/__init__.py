"""The options of a run: frozen dataclasses that check ranges, a module for each group. Loads no torch."""
