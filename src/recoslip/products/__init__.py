"""Layer 5: what people do with results: the command line, review, watch, cells, comparison, bench, Ray."""
