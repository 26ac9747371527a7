"""The numbers that the paper prints."""

from __future__ import annotations

from typing import NamedTuple


class PaperMean(NamedTuple):
    """A mean over the paper's 10 seeds and its standard error."""

    mean: float
    error: float


_COLUMNS = ("cora-s", "citeseer-s", "computers-s", "photo-s", "arxiv")
_AUROC = {  # thousandths, mean and standard error for each of the columns
    "oracle": ((953, 4), (864, 11), (986, 5), (985, 1), (847, 11)),
    "domain-discriminator": ((705, 16), (717, 11), (877, 25), (671, 35), (628, 20)),
    "upu": ((705, 16), (701, 23), (834, 32), (677, 38), (628, 18)),
    "nnpu": ((705, 15), (701, 23), (830, 31), (676, 37), (629, 20)),
    "sar-em": ((740, 39), (695, 15), (721, 73), (607, 36), (615, 32)),
    "lp-pul": ((666, 0), (638, 0), (830, 0), (256, 0), (658, 0)),
    "pu-gnn": ((705, 15), (701, 24), (833, 34), (678, 40), (627, 18)),
    "reco-slip": ((770, 25), (745, 19), (948, 8), (810, 11), (710, 22)),
    "reco-slip-none": ((755, 23), (714, 35), (946, 6), (795, 13), (703, 19)),
    "reco-slip-all": ((750, 31), (719, 30), (943, 13), (793, 12), (693, 24)),
    "reco-slip-target": ((767, 27), (723, 32), (943, 11), (812, 10), (699, 20)),
}

AUROC: dict[tuple[str, str], PaperMean] = {
    (method, dataset): PaperMean(mean / 1000, error / 1000)
    for method, row in _AUROC.items()
    for dataset, (mean, error) in zip(_COLUMNS, row, strict=True)
}

RANKS = {  # average rank among these four, by shift intensity
    "domain-discriminator": {"ns": 2.75, "ms": 2.75, "s": 2.50, "overall": 2.66},
    "sar-em": {"ns": 3.00, "ms": 2.75, "s": 3.50, "overall": 3.08},
    "pu-gnn": {"ns": 1.75, "ms": 3.25, "s": 3.00, "overall": 2.66},
    "reco-slip": {"ns": 2.50, "ms": 1.25, "s": 1.00, "overall": 1.58},
}
