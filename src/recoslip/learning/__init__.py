"""Layer 2: detectors, which score nodes. The default is `scan`; what needs PyTorch is in `networks`."""
