"""Traits in the table's own units, and what a group is compared with, on small graphs made by hand."""

import numpy as np
import polars as pl
import pytest

from recoslip import NodeGraph, read_graph
from recoslip.inference.groups import most_like
from recoslip.inference.traits import FeatureStatistics, numbers_in_words

PRICES = [10.0, 20.0, 30.0, 40.0, 500.0, 700.0]
CITIES = ["Oslo", "Oslo", "Oslo", "Rome", "Rome", "Rome"]
TITLES = ["steel pan", "steel knife", "wooden knife", "wooden pan", "steel rotor", "rotor rotor"]


@pytest.fixture
def shop():
    """Four source products and two target products, of three kinds of columns, whose blocks have other weights."""
    table = pl.DataFrame(
        {
            "id": [f"P{k}" for k in range(6)],
            "domain": ["source"] * 4 + ["target"] * 2,
            "price": PRICES,
            "city": CITIES,
            "title": TITLES,
        }
    )
    edges = pl.DataFrame({"a": ["P0", "P4"], "b": ["P1", "P5"]})
    return read_graph(table, edges, text=["title"])


def by_feature(traits):
    return {trait.feature: (trait.here, trait.there, trait.in_source) for trait in traits}


def test_traits_of_a_table_are_in_its_units(shop):
    assert {column["weight"] for column in shop.encoding.values()} != {1.0}
    traits = by_feature(FeatureStatistics(shop).traits([4, 5], [2, 3], count=20))
    assert traits["price"] == ("600", "35", "25")
    assert traits["city=Rome"] == ("100 %", "50 %", "25 %")
    assert traits["title:rotor"] == ("100 %", "0 %", "0 %")
    assert traits["title:steel"] == ("50 %", "0 %", "50 %")
    assert traits["title:wooden"] == ("0 %", "100 %", "50 %")


def test_of_one_node_a_word_is_there_or_not(shop):
    traits = by_feature(FeatureStatistics(shop).traits([4], count=20))
    assert traits["price"] == ("500", "25", "25")
    assert traits["title:rotor"] == ("yes", "0 %", "0 %")
    assert traits["title:knife"] == ("no", "50 %", "50 %")


def test_features_without_a_table_stay_as_they_are():
    graph = NodeGraph([[1.0], [3.0], [8.0]], np.empty((2, 0), dtype=int), [False, False, True])
    trait = FeatureStatistics(graph).traits([2])[0]
    assert (trait.feature, trait.mean, trait.reference) == ("feature 0", 8.0, 2.0)
    assert (trait.here, trait.there, trait.in_source) == ("8", "2", "2")


def test_numbers_get_the_digits_that_tell_them_apart():
    assert numbers_in_words([2007.0, 1999.4, 1999.0]) == ["2007", "1999", "1999"]
    assert numbers_in_words([0.123456, 0.123499]) == ["0.12346", "0.1235"]
    assert numbers_in_words([5.0, 5.0]) == ["5", "5"]
    assert numbers_in_words([-12345.6, 1e20]) == ["-12,346", "1e+20"]


def test_a_group_is_compared_with_the_source_nodes_most_like_it():
    similarity = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.8, 0.2], [0.1, 0.9]], dtype=np.float32)
    is_target = np.array([False, False, False, True, True])
    assert most_like(similarity, np.array([3]), np.flatnonzero(~is_target), count=2).tolist() == [0, 1]
    assert most_like(similarity, np.array([4]), np.flatnonzero(~is_target), count=1).tolist() == [2]
