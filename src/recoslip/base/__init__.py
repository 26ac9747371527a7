"""Layer 0: errors, files on the disk, randomness, settings, words. It imports nothing else of the package."""
