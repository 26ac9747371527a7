import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recoslip import NodeGraph, Split
from recoslip.base.errors import SettingError
from recoslip.base.randomness import Permutations
from recoslip.data.split import assign_source, default_split, random_split


def test_the_authors_recipe_step_by_step():
    labels = torch.tensor([0, 1, 0, 1, 0, 2, 1, 0, 0, 2])
    torch.manual_seed(42)  # the recipe as it is told: the global generator, one category after another
    source = torch.zeros(10, dtype=torch.bool)
    for category, ratio in ((0, 0.4), (1, 0.7)):
        nodes = torch.nonzero(labels == category).flatten()
        source[nodes[torch.randperm(len(nodes))[: int(len(nodes) * ratio)]]] = True
    s, t = torch.nonzero(source).flatten(), torch.nonzero(~source).flatten()
    s, t = s[torch.randperm(len(s))], t[torch.randperm(len(t))]

    permutations = Permutations(42)
    ours = assign_source(labels, (0.4, 0.7, 0), permutations)
    split = random_split(~ours, permutations)
    assert np.array_equal(ours, source)
    a, b, c = int(0.8 * len(s)), int(0.6 * len(t)), int(0.2 * len(t))
    assert set(np.flatnonzero(split.train)) == set(s[:a].tolist()) | set(t[:b].tolist())
    assert set(np.flatnonzero(split.validation)) == set(s[a:].tolist()) | set(t[b : b + c].tolist())
    assert set(np.flatnonzero(split.test)) == set(t[b + c :].tolist())


@given(st.integers(2, 60), st.integers(2, 60), st.integers(0, 9))
def test_every_node_has_one_part_and_source_never_tests(source, target, seed):
    is_target = np.arange(source + target) >= source
    split = random_split(is_target, Permutations(seed))
    assert (split.train.astype(int) + split.validation + split.test == 1).all()
    assert not (split.test & ~is_target).any()


def test_fixed_test_nodes_test_and_nothing_else_does():
    is_target = np.arange(20) >= 10
    test = np.arange(20) >= 17
    split = random_split(is_target, Permutations(0), target=(0.8, 0.2), test=test)
    assert (split.test == test).all()


def test_the_default_split_has_four_fifths_of_each_domain(graph):
    split = default_split(graph, 3)
    target = graph.is_target
    for domain in (target, ~target):
        assert (split.train & domain).sum() == int(0.8 * domain.sum())
    assert not split.test.any()


def test_bad_splits_are_refused():
    on, off = np.ones(4, dtype=bool), np.zeros(4, dtype=bool)
    with pytest.raises(SettingError, match="share nodes"):
        Split(on, on, off)
    with pytest.raises(SettingError, match="boolean arrays"):
        Split(on.astype(int), off, off)
    graph = NodeGraph(np.eye(4), [[0], [1]], [False, False, True, True])
    with pytest.raises(SettingError, match="no source node in validation"):
        Split(on, off, off).check(graph)
    with pytest.raises(SettingError, match="for 3 nodes"):
        Split(on[:3], off[:3], off[:3]).check(graph)
    with pytest.raises(SettingError, match="one source ratio"):
        assign_source([0, 1, 2], (0.5, 0.5), Permutations(0))
