"""Sizes of a graph and of a cluster -> what a run needs there: disk, memory and time. Nothing is read or trained.

For graphs that are packed and trained in batches on CPUs, by the default method. Bytes and the time to pack, evaluate
and analyse are those of one graph of 10,000,000 nodes (docs/scale.md), seconds of a step and of vectors those of 20,000
and 60,000 nodes; no larger run has checked them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from recoslip.detectors.catalogue import DEFAULT
from recoslip.detectors.reco_slip_plus import steps_factor
from recoslip.detectors.registry import detector
from recoslip.wording import duration

GIB = 2**30
ENTRY = 16  # bytes on disk of an edge in one direction
SORTING = 3  # times the edges on disk that packing takes besides
SCRATCH = 3 * 64 * 4  # bytes per node of the layers that an evaluation holds, in memory or on disk

BASE = 0.4 * GIB  # Python with its libraries
PACKING = (0.5 * GIB, 260)  # memory: a chunk of a million rows, and bytes per node
FITTING = (0.3 * GIB, 850)  # of a process: a batch, and bytes per node
ANALYSING = (0.3 * GIB, 1300)

PACK_SECONDS = (1e-6, 2e-6)  # of a core, per node and per edge in one direction
STEP_SECONDS = 0.1  # of a core, per step of a batch of 2048, all encoders
PASS_SECONDS = (1.5e-6, 0.115e-6)  # of a core, per network that is evaluated: per node, and per edge in one direction
VECTOR_SECONDS = 70e-6  # of a core, per node: vectors of nodes, and how far target nodes are from the source
ANALYSIS_SECONDS = 70e-6  # of a core, per node: analysis and page


@dataclass(frozen=True)
class Plan:
    """What a run needs.

    Args:
        nodes: of the graph.
        edges: of the graph, both directions counted as one.
        features: of each node.
        rotations: how many times to fit; each is one process's work.
        workers: processes that fit at once.
        cores: of each process.
        packed_bytes: of the packed graph, if there is one; by default those of dense features and unweighted edges.
    """

    nodes: int
    edges: int
    features: int
    rotations: int = 5
    workers: int = 1
    cores: int = 2
    packed_bytes: int | None = None

    @property
    def packed(self) -> float:
        """Bytes of the packed graph, which every machine reads."""
        if self.packed_bytes is not None:
            return self.packed_bytes
        return self.nodes * (4.0 * self.features + 9) + 2 * self.edges * ENTRY

    @property
    def packing(self) -> float:
        """Bytes on disk that packing takes besides, until it ends."""
        return float(SORTING * 2 * self.edges * ENTRY)

    @property
    def scratch(self) -> float:
        """Bytes of the layers of an evaluation: in memory, and on the disk of its machine where they are large."""
        return float(SCRATCH * self.nodes)

    def memory(self, part: tuple[float, float]) -> float:
        """Bytes of memory of one process, without pages of files."""
        fixed, per_node = part
        return BASE + fixed + per_node * self.nodes

    @property
    def pack_seconds(self) -> float:
        """Seconds to pack the tables; one core does it."""
        per_node, per_entry = PACK_SECONDS
        return per_node * self.nodes + per_entry * 2 * self.edges

    def _one_fit(self) -> Any:
        """Return the default method as it is fitted in each of several rotations."""
        model: Any = detector(DEFAULT)
        return model.set_params(**model.rotation_params())

    @property
    def steps(self) -> int:
        """Steps of one encoder in one fit."""
        one = self._one_fit()
        stages = (one.domain_epochs, one.epochs, *[one.round_epochs] * one.rounds)
        return sum(round(steps_factor(self.nodes) * epochs) for epochs in stages)

    @property
    def passes(self) -> int:
        """Evaluations of one network on all nodes, of all encoders, in one fit."""
        one = self._one_fit()
        networks: int = len(one.recall_targets) + (1 + one.rounds) * one.folds
        return len(one.encoders()) * networks

    @property
    def rotation_seconds(self) -> float:
        """Seconds of one fit by one process."""
        per_node, per_entry = PASS_SECONDS
        evaluation = self.passes * (per_node * self.nodes + per_entry * 2 * self.edges)
        return (self.steps * STEP_SECONDS + evaluation + VECTOR_SECONDS * self.nodes) / self.cores

    @property
    def fit_seconds(self) -> float:
        """Seconds of all fits, as many at once as there are workers."""
        return -(-self.rotations // self.workers) * self.rotation_seconds

    @property
    def analysis_seconds(self) -> float:
        """Seconds of the analysis and of the page, by one process."""
        return ANALYSIS_SECONDS * self.nodes / self.cores

    def facts(self) -> dict[str, float]:
        """Return sizes, bytes and seconds as JSON values."""
        return asdict(self) | {
            "packed_bytes": self.packed,
            "packing_bytes": self.packing,
            "scratch_bytes": self.scratch,
            "pack_memory": self.memory(PACKING),
            "fit_memory": self.memory(FITTING),
            "analysis_memory": self.memory(ANALYSING),
            "pack_seconds": self.pack_seconds,
            "rotation_seconds": self.rotation_seconds,
            "fit_seconds": self.fit_seconds,
            "analysis_seconds": self.analysis_seconds,
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the plan as a table: what is needed, and how much."""
        at_once = min(self.workers, self.rotations)
        idle = self.workers - at_once
        unused = f"; {idle} of the workers {'has' if idle == 1 else 'have'} nothing to do" if idle else ""
        return [
            (
                "disk",
                f"{_gib(self.packed)} for the packed graph, where every machine sees it; {_gib(self.packing)} besides "
                "while it is packed",
            ),
            (
                "disk of a machine",
                f"{_gib(self.scratch)} for each of its processes, where its memory does not hold that",
            ),
            (
                "memory of a process",
                f"{_gib(self.memory(FITTING))} to fit, {_gib(self.memory(PACKING))} to pack, "
                f"{_gib(self.memory(ANALYSING))} to analyse; what is free beyond that keeps pages of the graph",
            ),
            ("pack", f"about {duration(self.pack_seconds)}, on one core"),
            (
                "fit",
                f"about {duration(self.fit_seconds)}: {self.rotations} fits of {duration(self.rotation_seconds)}, "
                f"{at_once} at once{unused}",
            ),
            ("analyse", f"about {duration(self.analysis_seconds)}, the page included, by one process"),
        ]


def _gib(size: float) -> str:
    """Write bytes.

    >>> _gib(0.26 * 2**30), _gib(57.8 * 2**30)
    ('0.3 GiB', '58 GiB')
    """
    value = size / GIB
    return f"{max(0.1, value):.1f} GiB" if value < 10 else f"{value:,.0f} GiB"
