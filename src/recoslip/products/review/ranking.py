"""The folder of a run -> its nodes in the order of their scores, and what verdicts change about that."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from recoslip.base.errors import RecoslipError
from recoslip.base.files import printable
from recoslip.inference.calibrated import Calibrated
from recoslip.inference.feedback import Feedback
from recoslip.pipeline.saved import COLUMNS, read_scores, scores_file


@dataclass(frozen=True, eq=False)
class Ranking:
    """The nodes of a run, the target first and the highest scores on top."""

    folder: Path
    ids: list[str]
    is_target: NDArray[np.bool_]
    score: NDArray[np.float64]
    listed: NDArray[np.bool_]
    group: NDArray[np.int64]  # 0: listed, in no group; -1: not listed
    digest: str  # SHA-256 of the table of scores
    kept: pl.DataFrame = field(default_factory=pl.DataFrame)  # the user's own columns

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Ranking:
        """Read the scores that `detect` wrote."""
        path = Path(folder).expanduser()
        table = read_scores(path)
        with scores_file(path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(
            path,
            table["id"].to_list(),
            (table["domain"] == "target").to_numpy(),
            table["score"].to_numpy(),
            table["listed"].to_numpy(),
            table["group"].fill_null(-1).to_numpy(),
            digest,
            table.drop(*COLUMNS, "uncertainty", strict=False),
        )

    def learn(self, confirmed: Collection[str], rejected: Collection[str]) -> NDArray[np.float64]:
        """Return scores that take verdicts on target nodes into account, in the order of `ids`."""
        return np.asarray(Feedback(self._model, list(confirmed), list(rejected)).scores()[self._position])

    def queue(
        self, confirmed: Collection[str], rejected: Collection[str], count: int = 20, without: Collection[str] = ()
    ) -> list[str]:
        """Return the nodes whose verdicts teach most, given those so far; the highest, where nothing can be learned."""
        decided = {*confirmed, *rejected, *without}
        if self._model.vectors is None:
            left = (self.ids[k] for k in np.flatnonzero(self.is_target) if self.ids[k] not in decided)
            return list(islice(left, count))
        chosen = Feedback(self._model, list(confirmed), list(rejected)).queue(count, without=list(without))
        row = np.argsort(self._position)  # of each node of the model in this table
        return [self.ids[row[node]] for node in chosen.tolist()]

    @cached_property
    def _model(self) -> Calibrated:
        folder = self.folder / "model"
        if not folder.is_dir():
            raise RecoslipError(
                f"{printable(self.folder)} holds no model to learn with; review a folder that recoslip detect wrote"
            )
        return Calibrated.load(folder)

    @cached_property
    def _position(self) -> NDArray[np.int64]:
        """Where each node of the table is among those of the model."""
        from recoslip.data.ids import id_hashes

        hashes, nodes = id_hashes(self.ids), self._model.node
        order: NDArray[Any] = np.argsort(nodes)
        position = order[np.searchsorted(nodes, hashes, sorter=order) % len(nodes)]
        if len(nodes) != len(hashes) or not np.array_equal(nodes[position], hashes):
            raise RecoslipError(
                f"the model in {printable(self.folder)} was fitted on other nodes than its scores name; "
                "run detect again"
            )
        return np.asarray(position)
