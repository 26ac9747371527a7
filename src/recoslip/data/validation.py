"""What a caller passes as features, edges and domains -> checked arrays, or a GraphError that names the problem."""

import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Number
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from recoslip.base.errors import GraphError

MAX_WHOLE = 2**53  # up to which floats hold every whole number


@dataclass(frozen=True)
class EdgeRepairs:
    """What had to be done to the given edges to make them a simple undirected graph."""

    mirrored: int  # one-way edges that were given their other direction
    merged: int  # repetitions of an edge that was already there
    loops: int  # edges from a node to itself, dropped

    def __str__(self) -> str:
        counts = {
            "one-way edges mirrored": self.mirrored,
            "duplicate edges merged": self.merged,
            "self-loops dropped": self.loops,
        }
        return ", ".join(f"{count:,} {repair}" for repair, count in counts.items() if count) or "none needed"


def check_features(x: Any) -> Any:
    """Return features as a float32 array, or a csr_array where they are sparse."""
    x = _without_layout(x) if is_tensor(x) else x
    features: Any
    if sp.issparse(x):
        _refuse_complex("x", x.dtype)
        features = to_csr(x) if x.ndim == 2 else x
        bad = ~np.isfinite(features.data)
        rows, columns = (each[bad] for each in features.tocoo().coords) if bad.any() and x.ndim == 2 else ((), ())
    else:
        features = _numbers("x", x, "shape (nodes, features)", np.float32)
        bad = ~np.isfinite(features)
        rows, columns = np.nonzero(bad) if features.ndim == 2 else ((), ())
    if features.ndim != 2 or 0 in features.shape:
        raise GraphError(f"x must have shape (nodes, features) with at least one of each; got shape {features.shape}")
    if len(rows):
        rows, columns = np.unique(rows), np.unique(columns)
        raise GraphError(
            f"x holds NaN, infinite or extreme values (above 3e38) in {len(rows)} of {features.shape[0]} rows "
            f"(first: {rows[:5].tolist()}) and {len(columns)} of {features.shape[1]} columns (first: "
            f"{columns[:5].tolist()}); fill or drop them"
        )
    return features


def to_csr(matrix: sp.sparray | sp.spmatrix) -> sp.csr_array:
    """Any sparse matrix -> a float32 CSR matrix of its own memory with sorted, unique columns."""
    csr = sp.csr_array(matrix, copy=True)
    csr.sum_duplicates()
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return csr.astype(np.float32, copy=False)


def _without_layout(x: Any) -> Any:
    """Return a sparse tensor as a SciPy matrix, and any other as it is."""
    if str(x.layout) == "torch.strided" or x.is_nested:
        return x
    if x.dense_dim():  # each entry is a row of its own, so that little is sparse
        return x.to_dense()
    coo = x.detach().cpu().to_sparse_coo().coalesce()
    return sp.coo_array((as_array("x", coo.values()), coo.indices().numpy()), shape=tuple(coo.shape))


def check_edges(edge_index: ArrayLike, nodes: int) -> NDArray[np.int64]:
    """Return edges as (2, edges) positions of nodes."""
    raw = as_array("edge_index", edge_index)
    if raw.size == 0:
        return np.empty((2, 0), dtype=np.int64)
    if raw.ndim != 2 or raw.shape[0] != 2:
        hint = "; it looks transposed" if raw.ndim == 2 and raw.shape[1] == 2 else ""
        raise GraphError(f"edge_index must have shape (2, edges); got shape {raw.shape}{hint}")
    if raw.dtype == object and all(isinstance(value, Integral) for value in raw.flat):  # pandas' nullable numbers
        raw = np.array(raw.tolist())
    if raw.dtype.kind not in "iu":
        raise GraphError(f"edge_index must hold whole numbers (node positions); got {raw.dtype}")
    if raw.min() < 0 or raw.max() >= nodes:
        outside = np.unique(raw[(raw < 0) | (raw >= nodes)])
        raise GraphError(
            f"edge_index must hold node positions 0..{nodes - 1}; got {outside[:5].tolist()}"
            f"{' and more' if len(outside) > 5 else ''}"
        )
    edges: NDArray[np.int64] = raw.astype(np.int64, copy=False)
    return edges


def simple_edges(
    edges: NDArray[np.int64], edge_weight: ArrayLike | None, nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.float32] | None, EdgeRepairs]:
    """Directed edges as given -> both directions of each undirected edge, its weight, and what was repaired."""
    given = edges.shape[1]
    weight = None if edge_weight is None else _weights(edge_weight, given)
    keep = edges[0] != edges[1]
    ends = edges[:, keep].astype(np.int32 if nodes < 2**31 else np.int64, copy=False)
    directed = _adjacency(np.ones(ends.shape[1], dtype=np.int32), ends, nodes)
    directed.data[:] = 1  # repetitions merge
    directions = directed + directed.T  # 1 or 2 of each edge
    repairs = EdgeRepairs(
        mirrored=int((directions.data == 1).sum()) // 2,
        merged=ends.shape[1] - directed.nnz,
        loops=given - ends.shape[1],
    )
    merged_weight = None
    if weight is not None:
        summed = _adjacency(weight[keep], ends, nodes)
        with np.errstate(over="ignore", under="ignore"):
            mean = (summed + summed.T).data / directions.data
            merged_weight = mean.astype(np.float32)
        if len(mean):
            check_total_weights(mean.min(), mean.max())
    both = np.empty((2, directions.nnz), dtype=np.int64)
    both[0] = np.repeat(np.arange(nodes), np.diff(directions.indptr))
    both[1] = directions.indices
    return both, merged_weight, repairs


def _adjacency(values: NDArray[Any], ends: NDArray[Any], nodes: int) -> sp.csr_array:
    """Directed edges -> their sparse matrix, sorted by row and column, the values of repeated edges added up."""
    return sp.coo_array((values, (ends[0], ends[1])), shape=(nodes, nodes)).tocsr()


def _weights(edge_weight: ArrayLike, edges: int) -> NDArray[np.float64]:
    weight = _numbers("edge_weight", edge_weight, "one per edge", np.float64)
    if weight.shape != (edges,):
        raise GraphError(f"edge_weight must have shape ({edges},), one per edge; got shape {weight.shape}")
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight > 0)))
    if len(bad):
        raise GraphError(f"edge_weight must be positive and finite; edge {bad[0]} has {weight[bad[0]]}")
    return weight


def check_total_weights(lowest: float, highest: float) -> None:
    """Raise unless single precision can hold all weights from the lowest to the highest of merged edges."""
    with np.errstate(over="ignore", under="ignore"):
        low, high = np.array([lowest, highest]).astype(np.float32)
    if not (low > 0 and np.isfinite(high)):
        raise GraphError(
            "the total weight of an edge, its repetitions added up, must be between 1e-45 and 3e38; "
            f"got {lowest:g} to {highest:g}, scale the weights"
        )


def check_domains(is_target: ArrayLike, nodes: int, *, one_domain: bool = False) -> NDArray[np.bool_]:
    """Return which nodes are target; both domains must be present, unless one is enough."""
    raw = _per_node("is_target", is_target, nodes)
    if raw.dtype != bool and (strange := [value for value in raw.tolist() if not _is_flag(value)]):
        raise GraphError(f"is_target must hold true/false or 0/1 for each node; got {strange[:5]}")
    target = raw.astype(bool)
    if not one_domain and (target.all() or not target.any()):
        which = "source" if target.all() else "target"
        raise GraphError(f"both domains must be present: there is no {which} node among {nodes}; check is_target")
    return np.asarray(target)


def _is_flag(value: Any) -> bool:
    return isinstance(value, Number | np.bool_) and value in (0, 1)


def check_ids(ids: Iterable[Hashable] | NDArray[Any] | None, nodes: int) -> NDArray[Any]:
    """Return one unique id per node, positions by default; ids with the same text, such as 7 and "7", are the same.

    Scalars of NumPy and PyTorch and whole floats become Python's numbers, so that the same ids in another container
    have the same order and the same draws.
    """
    if ids is None:
        return _frozen(np.arange(nodes))
    array = _id_array(ids)
    if array.shape != (nodes,):
        raise GraphError(f"ids must name each of the {nodes} nodes, shape ({nodes},); got shape {array.shape}")
    names = list(array) if array.dtype.kind in "mM" else array.tolist()
    kinds = set(map(type, names))
    missing = [] if kinds <= {int, str} else [k for k, name in enumerate(names) if _is_missing(name)]
    if missing:
        raise GraphError(
            f"ids must name each of the {nodes} nodes; {len(missing)} are missing (first: at position {missing[0]})"
        )
    try:
        counts = Counter(names), Counter(map(str, names) if len(kinds) > 1 else ())
    except TypeError as problem:
        raise GraphError(f"ids must be hashable names such as numbers or texts, one per node: {problem}") from problem
    if repeated := [name for count in counts for name, times in count.items() if times > 1]:
        raise GraphError(
            f"ids must be unique, also as text; {len(repeated)} are repeated "
            f"(first: {', '.join(map(repr, repeated[:3]))})"
        )
    return _frozen(array)


def _id_array(ids: Iterable[Hashable] | NDArray[Any]) -> NDArray[Any]:
    """Return ids as an array of whole numbers where they are, else of what they are."""
    if isinstance(ids, set | frozenset):
        raise GraphError("ids must be in the order of the nodes; got a set, which has no order")
    if is_tensor(ids) or hasattr(ids, "__array__"):
        array = as_array("ids", ids)
        if array.dtype.kind in "iu":
            return array.astype(array.dtype.newbyteorder("="))
        if array.dtype.kind == "f" and ((array == np.floor(array)) & (np.abs(array) <= MAX_WHOLE)).all():
            return array.astype(np.int64)
        if array.ndim != 1 or array.dtype != object:
            return array.copy()
        ids = array.tolist()
    try:
        values = list(map(_plain, ids))
    except TypeError as problem:
        raise GraphError(f"ids must name each of the nodes: {problem}") from problem
    numbers = np.array(values) if set(map(type, values)) == {int} else np.empty(0)
    return numbers if numbers.dtype.kind in "iu" else np.fromiter(values, dtype=object, count=len(values))


def _plain(value: Any) -> Any:
    """Return a scalar of NumPy or PyTorch as Python's, and a float that is whole as a whole number."""
    if isinstance(value, np.number | np.str_ | np.bool_) or (is_tensor(value) and not value.dim()):
        value = value.item()
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_WHOLE else value


def _is_missing(name: Any) -> bool:
    try:
        return name is None or bool(name != name)
    except TypeError:  # pandas' NA is neither equal to itself nor different
        return True
    except ValueError:  # an array, which is no name
        return False


def check_per_node(name: str, values: ArrayLike | None, nodes: int) -> NDArray[Any] | None:
    """Return one value per node, read-only."""
    return None if values is None else _frozen(_per_node(name, values, nodes).copy())


def _per_node(name: str, values: ArrayLike, nodes: int) -> NDArray[Any]:
    array = as_array(name, values)
    if array.shape != (nodes,):
        raise GraphError(f"{name} must have shape ({nodes},), one per node; got shape {array.shape}")
    return array


def check_kept_columns(columns: Mapping[str, ArrayLike] | None, nodes: int) -> dict[str, NDArray[Any]]:
    """Return columns of one value per node, read-only."""
    given = (columns or {}).items()
    return {str(name): _frozen(_per_node(f"column {name!r}", values, nodes).copy()) for name, values in given}


def check_label(label: str | None, columns: Mapping[str, NDArray[Any]]) -> str | None:
    """Return the name of the column that names the nodes."""
    if label is not None and label not in columns:
        raise GraphError(f"label must be one of the columns ({', '.join(columns) or 'there are none'}); got {label!r}")
    return label


def check_feature_names(names: Sequence[str] | None, features: int) -> tuple[str, ...] | None:
    """Return one name per feature."""
    if names is not None and len(names) != features:
        raise GraphError(f"feature_names must name each of the {features} features; got {len(names)}")
    return None if names is None else tuple(map(str, names))


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Return values as an array, off any device; masked values and complex numbers are refused."""
    try:
        if isinstance(values, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in values):
            values = np.ma.array(values)  # as a plain array it would lose the masks
        array = _off_device(values) if is_tensor(values) else np.asanyarray(values)
    except (TypeError, ValueError, OverflowError, RuntimeError) as problem:  # rows of different lengths, say
        raise GraphError(f"{name} cannot be read as an array: {problem}") from problem
    if np.ma.is_masked(array):
        hidden = np.argwhere(np.ma.getmaskarray(array))
        raise GraphError(
            f"{name} holds {len(hidden)} masked values (first: {hidden[0].tolist()}), whose numbers mean nothing; "
            "fill or drop them"
        )
    _refuse_complex(name, array.dtype)
    return np.asarray(array)


def _numbers(name: str, values: Any, which: str, dtype: type) -> NDArray[Any]:
    """Return a copy of values as numbers; dates and durations, which NumPy would count, are refused."""
    array = as_array(name, values)
    if array.dtype.kind in "mM":
        raise GraphError(
            f"{name} must hold numbers; got {array.dtype}, divide the time since a date by a unit such as a day"
        )
    try:
        with np.errstate(over="ignore"):
            return np.array(array, dtype=dtype, order="C")
    except (TypeError, ValueError, OverflowError) as problem:
        raise GraphError(f"{name} must hold numbers, {which}: {problem}") from problem


def _refuse_complex(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind == "c":
        raise GraphError(f"{name} must hold real numbers; got {dtype}, take the real part or the absolute value")


def is_tensor(value: Any) -> bool:
    """Return whether it is a tensor of PyTorch, which is not imported here."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _off_device(tensor: Any) -> NDArray[Any]:
    """Return the values of a tensor; NumPy has no type for the shorter floats."""
    if tensor.is_floating_point() and tensor.dtype.itemsize < 4 and str(tensor.dtype) != "torch.float16":
        tensor = tensor.float()
    result: NDArray[Any] = tensor.numpy(force=True)
    return result


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
