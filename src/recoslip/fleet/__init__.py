"""Many networks on one graph, trained together: a single model is a fleet of one."""
