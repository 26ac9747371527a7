"""After the scores: what they are worth. Besides datasets, the only place that may see true categories."""
