"""A run's results and people's verdicts -> decisions that can be defended."""
