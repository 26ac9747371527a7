"""Batches of nodes, one after the other -> an alarm when a category is born, with a bound on false alarms."""
