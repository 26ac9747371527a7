"""Batches of nodes, one after the other -> an alarm when a new category appears, with a bound on false alarms."""
