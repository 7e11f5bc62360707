"""What a step would take with other networks and more workers: a model of its cost, fitted to measured runs."""
