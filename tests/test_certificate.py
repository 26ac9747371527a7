"""Certificates: exact bounds against enumeration, coverage over a thousand reviews, and every sentence."""

import json
from dataclasses import asdict
from itertools import combinations

import numpy as np
import pytest
from parsed_html import HOSTILE, ParsedHtml

from recoslip.base.errors import RecoslipError
from recoslip.products.review.certificate import Sample, bounds, certify, draw, least, most, propose, sample_size
from recoslip.products.review.decisions import Nodes, validated


def ranking(listed, rest):
    """A run with so many listed nodes and others, without files."""
    total = listed + rest
    is_listed = np.arange(total) < listed
    names = [f"n{k}" for k in range(total)]
    group = np.where(is_listed, 1, -1)
    return Nodes(names, np.ones(total, dtype=bool), np.linspace(1, 0, total), is_listed, group, "ab" * 32)


@pytest.mark.parametrize("drawn", [1, 3, 5])
@pytest.mark.parametrize("error", [0.05, 0.2])
def test_bounds_are_those_of_an_enumeration_of_all_samples(drawn, error):
    population = 8
    for found in range(drawn + 1):
        tails = []  # probability of so many novel nodes in the sample or more, by the number in the population
        for novel in range(population + 1):
            hits = [sum(node < novel for node in sample) for sample in combinations(range(population), drawn)]
            tails.append(np.mean([hit >= found for hit in hits]))
        assert least(population, drawn, found, error) == next(k for k, tail in enumerate(tails) if tail > error)


def test_bounds_mirror_each_other():
    for found in range(7):
        assert most(40, 6, found, 0.05) == 40 - least(40, 6, 6 - found, 0.05)


def test_a_review_that_ends_early_has_bounds_around_those_of_the_whole():
    whole = bounds(200, 20, 14, 6, 0.05)
    early = bounds(200, 20, 9, 3, 0.05)
    assert early[0] < whole[0] <= whole[1] < early[1]


def test_a_sample_of_everything_leaves_no_doubt():
    assert bounds(30, 30, 12, 18, 0.05) == (12, 12)


def test_the_size_that_is_proposed_certifies_most_of_the_list_if_all_of_it_is_new():
    for population in (1, 2, 10, 100, 5000):
        size = sample_size(population, 0.85, 0.05)
        assert least(population, size, size, 0.05) >= 0.85 * population
        if size > 1:
            assert least(population, size - 1, size - 1, 0.05) < 0.85 * population


@pytest.mark.parametrize(
    ("listed", "rest", "of_list", "of_rest"), [(40, 360, 25, 15), (120, 400, 90, 4), (300, 50, 300, 50)]
)
def test_statements_hold_in_95_of_100_reviews_that_end_at_any_time(listed, rest, of_list, of_rest):
    rng = np.random.default_rng(0)
    run = ranking(listed, rest)
    novel = {f"n{k}" for k in [*range(of_list), *range(listed, listed + of_rest)]}
    share = (of_list + of_rest) / (listed + rest)
    reviews, precision_holds, share_holds = 1000, 0, 0
    for seed in range(reviews):
        sample = draw(run, propose(run), seed)
        looked_at = sample.nodes[: rng.integers(0, len(sample.nodes) + 1)] if seed % 2 else sample.nodes
        found = certify(sample, {node: node in novel for node in looked_at})
        precision_holds += found.precision <= of_list / listed
        low, high = found.share
        share_holds += low <= share <= high
    assert precision_holds >= 0.95 * reviews
    assert share_holds >= 0.95 * reviews


def test_the_sentence_of_twenty_of_twenty():
    run = ranking(10_000, 10_000)
    sample = draw(run, 40, 1)
    found = certify(sample, dict.fromkeys(sample.nodes[:20], True) | dict.fromkeys(sample.nodes[20:], False))
    assert found.sentence == (
        "95 % sure that at least 86 % of this list of 10,000 nodes is new (20 of 20 drawn at random are confirmed). "
        "95 % sure that 40 % to 60 % of all 20,000 target nodes are new."
    )
    low, high = found.share
    assert low == (least(10_000, 20, 20, 0.0125) + 0) / 20_000
    assert high == (10_000 + most(10_000, 20, 0, 0.0125)) / 20_000


def test_nodes_without_a_verdict_count_against_the_list():
    sample = draw(ranking(50, 50), 20, 3)
    found = certify(sample, dict.fromkeys(sample.nodes[:6], True))
    assert "(6 of 10 drawn at random are confirmed, 4 without a verdict, which count as known)" in found.sentence
    assert found.precision == least(50, 10, 6, 0.05) / 50
    assert found.of_rest.undecided == 10


def test_before_the_first_verdict_nothing_is_certified():
    sample = draw(ranking(50, 50), 20, 3)
    assert certify(sample, {}).sentence == "Nothing is certified yet: none of the 20 drawn nodes has a verdict."


def test_an_empty_list_gets_a_share_alone():
    sample = draw(ranking(0, 80), 20, 3)
    found = certify(sample, dict.fromkeys(sample.nodes, False))
    assert found.sentence.startswith("95 % sure that 0 % to ")
    assert "list" not in found.sentence


def test_verdicts_outside_the_sample_do_not_count():
    sample = draw(ranking(50, 50), 10, 3)
    others = {f"n{k}": True for k in range(100)}.keys() - set(sample.nodes)
    assert certify(sample, dict.fromkeys(others, True)).verdicts == {}


def test_the_draw_can_be_repeated_and_holds_every_node_once():
    run = ranking(30, 70)
    one, again = draw(run, 40, 8), draw(run, 40, 8)
    assert one == again == validated(Sample, json.dumps(asdict(one)).encode())
    assert len(set(one.nodes)) == 40
    assert one.from_list == 20
    assert all(run.listed[run.ids.index(node)] for node in one.nodes[:20])
    assert draw(run, 40, 9).nodes != one.nodes


def test_what_is_proposed_is_drawn_half_from_the_list():
    run = ranking(102, 648)
    sample = draw(run, propose(run), 0)
    assert sample.from_list == sample_size(102, 0.85, 0.05) == len(sample.nodes) / 2
    assert propose(ranking(0, 500)) == 20
    assert propose(ranking(500, 0)) == sample_size(500, 0.85, 0.05)


def test_a_short_list_or_a_short_rest_gives_its_place_to_the_other():
    assert draw(ranking(3, 70), 20, 0).from_list == 3
    assert draw(ranking(70, 3), 20, 0).from_list == 17


@pytest.mark.parametrize("size", [0, -1, 101])
def test_a_sample_that_cannot_be_drawn_is_refused(size):
    with pytest.raises(RecoslipError, match="a sample has 1 to 100 nodes"):
        draw(ranking(30, 70), size, 0)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_the_page_says_the_sentence_the_hash_and_every_node_as_text(hostile):
    run = ranking(5, 5)
    run.ids[0] = hostile
    sample = draw(run, 10, 1)
    found = certify(sample, {sample.nodes[0]: True, sample.nodes[1]: False})
    page = ParsedHtml(found.html())
    assert found.sentence in page.text_of["p"]
    assert page.text_of["code"] == ["ab" * 32, "1"]
    cells = page.text_of["td"]
    rows = [cells[k : k + 4] for k in range(0, len(cells), 4)]
    assert [node for _, node, _, _ in rows] == list(sample.nodes)
    assert [source for _, _, source, _ in rows] == ["list"] * 5 + ["rest"] * 5
    assert [verdict for _, _, _, verdict in rows] == ["new", "known"] + ["no verdict"] * 8
    assert set(page.tags).isdisjoint({"script", "img", "b"})
    assert "default-src 'none'" in page.policy
    assert "unsafe" not in page.policy
