"""The numbers that the paper reports, and the names it prints."""

from __future__ import annotations

from typing import NamedTuple

from recoslip.datasets.catalogue import GRAPHS


class PaperMean(NamedTuple):
    """A mean over the paper's 10 seeds and its standard error."""

    mean: float
    error: float


TITLES = {
    "oracle": "Oracle",
    "domain-discriminator": "Domain discriminator",
    "upu": "uPU",
    "nnpu": "nnPU",
    "sar-em": "SAR-EM",
    "lp-pul": "LP-PUL",
    "pu-gnn": "PU-GNN",
    "reco-slip": "RECO-SLIP",
    "reco-slip-none": "w/o link prediction",
    "reco-slip-all": "w/ full link prediction",
    "reco-slip-target": "w/ target link prediction",
    "conoc": "CoNoC",
    "dist-pu": "Dist-PU",
    "elkan-noto": "Elkan-Noto",
    "energy": "Energy",
    "dominant": "DOMINANT",
    "reco-slip-plus": "RECO-SLIP+",
}
SHIFTS = ("ns", "ms", "s")  # versions of each graph: no, minor and strong shift

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


def paper_seeds(count: int) -> tuple[int, ...]:
    """Return the first seeds of the paper: 10, 20, ...

    >>> paper_seeds(3)
    (10, 20, 30)
    """
    return tuple(range(10, 10 * count + 1, 10))


def title(name: str) -> str:
    """Return the name of a method or dataset as the paper prints it, or as it is where the paper has none.

    >>> title("nnpu"), title("cora-ms"), title("photo"), title("shop")
    ('nnPU', 'Cora-MS', 'Photo', 'shop')
    """
    graph, dash, version = name.partition("-")
    if graph in GRAPHS:
        return f"{GRAPHS[graph]}{dash}{version.upper()}"
    return TITLES.get(name, name)
