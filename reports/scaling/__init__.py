"""Predict steps with other networks and more workers, by a cost model that is fitted to measured runs."""
