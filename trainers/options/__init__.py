"""What a run can be made of: frozen dataclasses with ranges, a module for each group. Loads no torch."""
