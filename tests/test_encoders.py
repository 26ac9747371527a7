"""Encoders of columns: learned once, kept as JSON, and the same features for the same row in every table."""

import copy
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from arrays import dense_x
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from recoslip import read_graph
from recoslip.base.errors import TableError
from recoslip.data.alignment import reduced_features
from recoslip.data.options import BLOCKS
from recoslip.data.packed.reader import open_packed
from recoslip.data.packed.writer import pack
from recoslip.data.tables.column_encoders import (
    CategoryEncoder,
    NumberEncoder,
    TextEncoder,
    VectorEncoder,
    encoder_from_json,
)
from recoslip.data.tables.columns import MAX_CATEGORIES, Column
from recoslip.data.tables.table_encoder import TableEncoder, fit_encoder, same_encoding

WORDS = ["red", "green", "blue", "shoe", "hat", "coat", "old", "new", "large", "small"]
KINDS = {"price": "number", "colour": "category", "title": "text", "image": "vector"}


def table(rows=200, seed=0):
    """A table with a column of each kind, some values of which are missing."""
    rng = np.random.default_rng(seed)
    colours = rng.choice(["red", "green", "blue", "teal", "mauve"], rows, p=[0.4, 0.3, 0.27, 0.02, 0.01])
    frame = pl.DataFrame(
        {
            "price": np.exp(rng.normal(0, 3, rows)),
            "colour": colours,
            "title": [" ".join(rng.choice(WORDS, 4)) for _ in range(rows)],
            "image": rng.normal([1.0, -2.0, 0.0], [1.0, 3.0, 0.1], (rows, 3)).tolist(),
        }
    )
    missing = pl.Series(rng.random(rows) < 0.1)
    return frame.with_columns(pl.when(missing).then(None).otherwise(pl.all()).name.keep())


def even_table(rows=200, seed=0):
    """The same without the few largest prices, which alone decide on the mean of all."""
    return table(rows, seed).with_columns(pl.col("price").log())


def fit(frame, kinds=KINDS, impute=True, **weights):
    columns = [Column(name, kind) for name, kind in kinds.items()]
    return fit_encoder(frame, columns, impute=impute, weights=weights)


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def features(encoder, frame, **options):
    return dense(encoder.transform(frame, **options).matrix)


SELECTIONS = [*({name: kind} for name, kind in KINDS.items()), KINDS]


@pytest.fixture(scope="module", params=SELECTIONS, ids=lambda kinds: "+".join(kinds.values()))
def fitted(request):
    """A table, an encoder of one kind of column or of all, and the features of the table."""
    frame = table()
    encoder, own = fit(frame, request.param)
    return frame, encoder, dense(own.matrix)


# The same row, the same features


def test_the_rows_fitted_on_have_the_features_of_the_fit(fitted):
    frame, encoder, own = fitted
    assert encoder.transform(frame, impute=True).matrix.dtype == own.dtype == np.float32
    np.testing.assert_array_equal(features(encoder, frame, impute=True), own)
    assert own.shape == (frame.height, len(encoder.feature_names))


@given(chosen=st.lists(st.integers(0, 199), min_size=1, max_size=30))
@settings(max_examples=25)
def test_a_rows_features_do_not_depend_on_the_other_rows(fitted, chosen):
    frame, encoder, own = fitted
    np.testing.assert_array_equal(features(encoder, frame[chosen], impute=True), own[chosen])


@pytest.mark.parametrize("chosen", [slice(None, None, -1), slice(0, 1), slice(100), slice(1, None, 7)])
def test_a_part_of_the_table_in_any_order_has_the_features_of_the_whole(fitted, chosen):
    frame, encoder, own = fitted
    np.testing.assert_array_equal(features(encoder, frame[chosen], impute=True), own[chosen])


def test_rows_beside_strange_ones_have_the_features_that_they_have_alone(fitted):
    frame, encoder, own = fitted
    strange = pl.DataFrame(
        {"price": [1e30], "colour": ["puce"], "title": ["wholly unheard of"], "image": [[9e9, -9e9, 0.0]]},
    )
    together = features(encoder, pl.concat([frame, strange, frame]), impute=True)
    np.testing.assert_array_equal(together[:200], own)
    np.testing.assert_array_equal(together[201:], own)


def test_an_encoder_fitted_to_the_rows_in_another_order_is_the_same(fitted):
    frame, encoder, own = fitted
    kinds = {column.name: column.encoding for column in encoder.columns}
    other, of_other = fit(frame.reverse(), kinds)
    assert same_encoding(other.to_json(), encoder.to_json())
    np.testing.assert_allclose(dense(of_other.matrix)[::-1], own, rtol=1e-6, atol=1e-7)


# Its state


def test_an_encoder_rebuilt_from_json_text_gives_the_same_features_bit_for_bit(fitted):
    frame, encoder, own = fitted
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    assert again.feature_names == encoder.feature_names
    np.testing.assert_array_equal(features(again, frame, impute=True), own)


@given(values=st.lists(st.floats(-1e100, 1e100) | st.none(), min_size=1, max_size=20))
@settings(max_examples=50)
def test_any_numbers_give_a_state_that_json_keeps(values):
    series = pl.Series("x", values, dtype=pl.Float64)
    encoder = NumberEncoder.fit(series)
    again = encoder_from_json("x", json.loads(json.dumps(encoder.to_json())))
    np.testing.assert_array_equal(again.transform(series), encoder.transform(series))
    assert np.isfinite(encoder.transform(series)).all()


@given(values=st.lists(st.text(max_size=8) | st.none(), min_size=1, max_size=30))
@settings(max_examples=50)
def test_any_categories_give_a_state_that_json_keeps(values):
    series = pl.Series("x", values, dtype=pl.String)
    encoder = CategoryEncoder.fit(series)
    again = encoder_from_json("x", json.loads(json.dumps(encoder.to_json())))
    np.testing.assert_array_equal(dense(again.transform(series)), dense(encoder.transform(series)))
    np.testing.assert_array_equal(dense(encoder.transform(series)).sum(axis=1), 1)


# Values computed by hand


def test_a_number_is_centred_and_scaled_and_the_median_stands_for_missing_ones():
    series = pl.Series("price", [1.0, 2.0, 3.0, 4.0, 100.0, None, float("nan")])
    encoder = NumberEncoder.fit(series)
    centred = np.array([-2.0, -1, 0, 1, 97, 0, 0])  # less the median, 3
    assert (encoder.median, encoder.mean) == (3.0, pytest.approx(95 / 7))
    assert encoder.scale == pytest.approx(np.sqrt((centred**2).mean() - (95 / 7) ** 2))
    np.testing.assert_allclose(encoder.transform(series)[:, 0], (centred - 95 / 7) / encoder.scale)
    np.testing.assert_array_equal(encoder.transform(series)[:, 1], [0, 0, 0, 0, 0, 1, 1])
    assert encoder.transform(pl.Series("price", [None], dtype=pl.Float64)).ravel() == pytest.approx(
        [-95 / 7 / encoder.scale, 1]
    )
    assert encoder.feature_names == ["price", "price=(missing)"]
    assert NumberEncoder.fit(series.head(5)).feature_names == ["price"]


def test_a_number_that_never_varied_has_the_feature_0_and_others_are_as_far_as_they_are():
    encoder = NumberEncoder.fit(pl.Series("x", [7.0] * 5))
    assert (encoder.median, encoder.mean, encoder.scale) == (7.0, 0.0, 1.0)
    assert encoder.transform(pl.Series("x", [7.0, 9.5]))[:, 0].tolist() == [0.0, 2.5]


def test_true_and_false_are_numbers():
    encoder = NumberEncoder.fit(pl.Series("x", [True, False, False, False]))
    assert encoder.transform(pl.Series("x", [True, False]))[:, 0] == pytest.approx([3**0.5, -(3**-0.5)])


def brands(*more):
    return pl.Series("brand", ["x"] * 60 + ["y"] * 37 + ["p", "q", "r", *more])


def test_rare_categories_share_a_feature_that_unknown_ones_join():
    encoder = CategoryEncoder.fit(brands())
    assert (encoder.values, sorted(encoder.rare), encoder.shares) == (["x", "y"], ["p", "q", "r"], [0.6, 0.37, 0.03])
    assert encoder.feature_names == ["brand=x", "brand=y", "brand=(rare)"]
    rows = dense(encoder.transform(pl.Series("brand", ["y", "q", "never seen", "x"])))
    assert rows.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]]


def test_an_unknown_category_has_no_feature_where_there_were_no_rare_ones():
    encoder = CategoryEncoder.fit(brands().head(97))
    assert encoder.feature_names == ["brand=x", "brand=y"]
    assert dense(encoder.transform(pl.Series("brand", ["p", "y"]))).tolist() == [[0, 0], [0, 1]]


def test_missing_categories_are_a_category():
    encoder = CategoryEncoder.fit(brands(*[None] * 10))
    assert "(missing)" in encoder.values
    row = dense(encoder.transform(pl.Series("brand", [None], dtype=pl.String)))[0]
    assert row[encoder.values.index("(missing)")] == row.sum() == 1


def test_no_column_has_more_features_than_the_most_categories():
    series = pl.Series("x", [f"v{k % 80:02}" for k in range(800)])
    encoder = CategoryEncoder.fit(series)
    assert len(encoder.feature_names) == MAX_CATEGORIES
    assert sum(encoder.shares) == pytest.approx(1)


def test_a_text_is_its_known_words_weighted_by_how_few_texts_have_them():
    series = pl.Series("title", ["red shoe", "red hat", "blue hat"])
    encoder = TextEncoder.fit(series)
    idf = {"red": np.log(4 / 3) + 1, "hat": np.log(4 / 3) + 1, "shoe": np.log(4 / 2) + 1, "blue": np.log(4 / 2) + 1}
    assert encoder.words == ["blue", "hat", "red", "shoe"]
    assert encoder.idf == pytest.approx([idf[word] for word in encoder.words])
    assert encoder.shares == pytest.approx([1 / 3, 2 / 3, 2 / 3, 1 / 3])
    texts = pl.Series("title", ["red shoe", "RED unheard red", "unheard of", None])
    norm = np.hypot(idf["red"], idf["shoe"])
    expected = [[0, 0, idf["red"] / norm, idf["shoe"] / norm], [0, 0, 1, 0], [0] * 4, [0] * 4]
    np.testing.assert_allclose(dense(encoder.transform(texts)), expected, rtol=1e-6)


def test_words_of_one_or_two_texts_are_left_out_of_large_tables():
    common = ["red hat", "blue hat", "red coat", "blue coat"] * 60
    encoder = TextEncoder.fit(pl.Series("title", [*common, "hapax hat", "twice hat", "twice coat"]))
    assert encoder.words == ["blue", "coat", "hat", "red"]


def test_texts_without_any_word_are_refused():
    with pytest.raises(TableError, match="text column 'title' holds no words to use"):
        TextEncoder.fit(pl.Series("title", ["-", "", None]))


def test_vectors_are_as_they_are_and_the_mean_stands_for_missing_ones():
    encoder = VectorEncoder.fit(pl.Series("v", [[1.0, 2.0], [3.0, 4.0], None]))
    assert (encoder.mean, encoder.deviation) == ([2.0, 3.0], [1.0, 1.0])
    rows = encoder.transform(pl.Series("v", [[5, 6], None], dtype=pl.List(pl.Int64)))
    assert rows.tolist() == [[5, 6], [2, 3]]
    assert encoder.feature_names == ["v[0]", "v[1]"]


def test_vectors_given_in_parts_are_learned_like_all_at_once():
    series = table()["image"]
    whole = VectorEncoder.fit(series)
    parts = VectorEncoder.fit_chunks("image", [series[:50], series[50:51], series[51:]])
    assert same_encoding(parts.to_json(), whole.to_json())


# Other tables


@pytest.fixture(scope="module")
def shop():
    """An encoder of every kind, and a table without missing values."""
    frame = table().drop_nulls()
    return fit(frame, impute=False)[0], frame


@pytest.mark.parametrize("column", KINDS)
def test_a_missing_column_is_an_error_that_names_the_nearest_and_what_to_do(shop, column):
    encoder, frame = shop
    with pytest.raises(TableError) as raised:
        encoder.transform(frame.rename({column: f"{column}s"}))
    message = str(raised.value)
    assert f"no column {column!r} (did you mean '{column}s'?)" in message
    assert f"rename={{'new': {column!r}}}" in message
    assert "impute=True" in message


@pytest.mark.parametrize("column", KINDS)
def test_a_missing_column_is_filled_if_that_is_asked_for(shop, column):
    encoder, frame = shop
    given = encoder.transform(frame.drop(column), impute=True)
    empty = frame.with_columns(pl.lit(None, dtype=frame.schema[column]).alias(column))
    np.testing.assert_array_equal(dense(given.matrix), features(encoder, empty, impute=True))
    assert given.missing == {column: frame.height}
    others = [not name.startswith(column) for name in encoder.feature_names]
    np.testing.assert_array_equal(dense(given.matrix)[:, others], features(encoder, frame)[:, others])


@pytest.mark.parametrize("column", KINDS)
def test_missing_values_are_refused_unless_they_are_to_be_filled(shop, column):
    encoder, frame = shop
    holes = frame.with_columns(pl.when(pl.int_range(pl.len()) == 3).then(None).otherwise(column).alias(column))
    with pytest.raises(TableError, match=rf"missing values: '{column}' in 1 rows \(first: row 3\)"):
        encoder.transform(holes, impute=False)
    assert encoder.transform(holes).missing == {column: 1}


def test_missing_numbers_that_are_written_as_text_are_refused_like_others(shop):
    encoder, frame = shop
    prices = frame["price"].cast(pl.String).to_list()
    with pytest.raises(TableError):
        encoder.transform(frame.with_columns(price=pl.Series(["nan", *prices[1:]])), impute=False)


def test_a_renamed_column_is_read_under_the_name_that_it_had(shop):
    encoder, frame = shop
    renamed = frame.rename({"price": "price_eur", "title": "name"})
    found = features(encoder, renamed, rename={"price_eur": "price", "name": "title"})
    np.testing.assert_array_equal(found, features(encoder, frame))


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"prize": "price"}, "the table has no column 'prize' .did you mean 'price'"),
        ({"extra": "prise"}, "the model was fitted with no column 'prise' .did you mean 'price'"),
        ({"extra": "price"}, "has a column 'price' already"),
    ],
)
def test_a_wrong_rename_is_refused(shop, rename, message):
    encoder, frame = shop
    with pytest.raises(TableError, match=message):
        encoder.transform(frame.with_columns(extra=1.0), rename=rename)


def test_two_columns_cannot_both_be_renamed_to_one(shop):
    encoder, frame = shop
    two = frame.rename({"price": "net"}).with_columns(gross=pl.col("net"))
    with pytest.raises(TableError, match="gives two columns one name; name one of them"):
        encoder.transform(two, rename={"net": "price", "gross": "price"})


def test_columns_that_were_not_fitted_are_passed_over_and_the_order_does_not_matter(shop):
    encoder, frame = shop
    more = frame.with_columns(extra=pl.lit("x"), domain=pl.lit(1)).select("extra", *reversed(frame.columns), "domain")
    np.testing.assert_array_equal(features(encoder, more), features(encoder, frame))


def test_numbers_that_have_become_text_are_read(shop):
    encoder, frame = shop
    as_text = frame.with_columns(price=pl.format(" {} ", pl.col("price").cast(pl.String)))
    np.testing.assert_array_equal(features(encoder, as_text), features(encoder, frame))


def test_text_that_is_no_number_is_refused_with_the_first_and_how_many(shop):
    encoder, frame = shop
    prices = ["12 pence", "cheap", *["3.5"] * (frame.height - 2)]
    with pytest.raises(TableError, match=r"'price' must hold numbers, .* got '12 pence' and 1 more such rows"):
        encoder.transform(frame.with_columns(price=pl.Series(prices)))


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("price", [[1.0]], "'price' must hold numbers, as when the model was fitted; got List"),
        ("price", [1e101], "infinite or extreme values"),
        ("price", ["inf"], "infinite or extreme values"),
        ("colour", [["red"]], "'colour' must hold one text per row; got List"),
        ("title", [b"red"], "'title' must hold one text per row; got Binary"),
        ("image", [1.0], "'image' must hold lists of numbers, as when the model was fitted; got Float64"),
        ("image", ["1,2,3"], "'image' must hold lists of numbers"),
        ("image", [[1.0, 2.0]], r"'image' must have one length; got lengths \[2, 3\]"),
        ("image", [[1.0, 2.0, float("nan")]], "empty, infinite or extreme values in 1 rows"),
    ],
)
def test_values_of_another_type_are_refused(shop, column, values, message):
    encoder, frame = shop
    with pytest.raises(TableError, match=message):
        encoder.transform(frame.head(1).with_columns(pl.Series(column, values)))


def test_categories_that_have_become_numbers_are_read_as_they_are_written():
    encoder = CategoryEncoder.fit(pl.Series("size", ["7", "8"] * 10))
    assert dense(encoder.transform(pl.Series("size", [8, 7, 9]))).tolist() == [[0, 1], [1, 0], [0, 0]]


# Drift


def test_the_rows_fitted_on_have_not_drifted(fitted):
    frame, encoder, _ = fitted
    for drift in encoder.transform(frame, impute=True).drift.values():
        assert (drift.deviations or 0) == pytest.approx(0, abs=1e-6)
        assert (drift.moved or 0) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("rows", [10, 100, 1000])
def test_other_rows_of_the_same_kind_have_hardly_drifted(rows):
    encoder, _ = fit(even_table(2000))
    drifts = [encoder.transform(even_table(rows, seed), impute=True).drift for seed in range(1, 6)]
    for name, kind in KINDS.items():
        far = [drift[name].deviations if kind in ("number", "vector") else drift[name].moved for drift in drifts]
        assert np.mean(far) < 0.3 * (10 / rows) ** 0.5 + 0.02, name


@pytest.mark.parametrize("rows", [20, 500])
def test_numbers_that_moved_by_two_standard_deviations_have_drifted_by_two(rows):
    rng = np.random.default_rng(0)
    encoder, _ = fit(pl.DataFrame({"x": rng.normal(5, 3, 500)}), {"x": "number"})
    moved = pl.DataFrame({"x": rng.normal(11, 3, rows)})
    assert encoder.transform(moved).drift["x"].deviations == pytest.approx(2, abs=2.5 / rows**0.5)


def test_vectors_that_moved_by_two_standard_deviations_have_drifted_by_two():
    frame = table()
    encoder, _ = fit(frame, {"image": "vector"})
    step = np.array([2.0, -6.0, 0.2])
    moved = [None if each is None else (np.array(each) + step).tolist() for each in frame["image"]]
    assert encoder.transform(pl.DataFrame({"image": moved}), impute=True).drift["image"].deviations == pytest.approx(
        2, rel=0.15
    )


def test_vectors_that_never_varied_have_not_drifted():
    encoder, _ = fit(pl.DataFrame({"v": [[1.0, 1.0]] * 9}), {"v": "vector"})
    assert encoder.transform(pl.DataFrame({"v": [[1.0, 1.0]] * 4})).drift["v"].deviations == 0


def test_the_fraction_of_categories_that_moved_is_said():
    encoder, _ = fit(pl.DataFrame({"x": ["a", "b"] * 500}), {"x": "category"})
    for share, moved in ((0.5, 0), (0.7, 0.2), (0.9, 0.4), (1.0, 0.5)):
        count = round(1000 * share)
        drift = encoder.transform(pl.DataFrame({"x": ["a"] * count + ["b"] * (1000 - count)})).drift["x"]
        assert drift.moved == pytest.approx(moved, abs=0.03)


def test_texts_of_other_words_have_moved():
    encoder, _ = fit(pl.DataFrame({"t": ["red hat", "red coat", "old shoe", "old boot"] * 50}), {"t": "text"})
    drift = encoder.transform(pl.DataFrame({"t": ["red hat", "red coat"] * 100})).drift["t"]
    assert drift.moved == pytest.approx(0.5, abs=0.08)
    assert drift.unknown == 0


def test_unknown_categories_and_texts_without_a_known_word_are_counted():
    frame = table().drop_nulls()
    encoder, _ = fit(frame)
    other = frame.head(10).with_columns(
        colour=pl.Series(["puce", "puce", "ochre", *frame["colour"][3:10]]),
        title=pl.Series(["unheard of", "red unheard", *frame["title"][2:10]]),
    )
    drift = encoder.transform(other).drift
    assert {name: each.unknown for name, each in drift.items()} == {"price": 0, "colour": 3, "title": 1, "image": 0}
    assert all(each.unknown == 0 for each in encoder.transform(frame).drift.values())


# The weights of blocks


@pytest.mark.parametrize("kind", BLOCKS)
def test_one_block_alone_has_weight_1(kind):
    frame = table()
    (column,) = [name for name, encoding in KINDS.items() if encoding == kind]
    doubled = frame.with_columns(frame[column].shuffle(1).alias("second"))
    for kinds in ({column: kind}, {column: kind, "second": kind}):
        encoder, _ = fit(doubled, kinds)
        assert set(encoder.weights) == {1.0}


def products_of_rows(matrix):
    """The inner products of different rows, which are centred."""
    centred = matrix - matrix.mean(axis=0)
    return (centred @ centred.T)[np.triu_indices(len(centred), 1)]


@pytest.mark.parametrize("seed", range(3))
def test_inner_products_of_rows_vary_as_much_in_every_block(seed):
    encoder, own = fit(even_table(600, seed))
    matrix, start = dense(own.matrix).astype(float), 0
    for column in encoder.columns:
        end = start + len(column.feature_names)
        assert products_of_rows(matrix[:, start:end]).var() == pytest.approx(1, rel=0.15), column.name
        start = end


def test_the_columns_of_a_block_share_its_weight():
    rng = np.random.default_rng(0)
    numbers = {f"x{k}": rng.normal(size=300) for k in range(5)}
    encoder, own = fit(table(300).with_columns(**numbers), {"title": "text", **dict.fromkeys(numbers, "number")})
    weights = dict(zip([column.name for column in encoder.columns], encoder.weights, strict=True))
    assert len({weights[name] for name in numbers}) == 1
    assert weights["x0"] == pytest.approx(5**-0.25, rel=0.1)
    assert products_of_rows(dense(own.matrix)[:, -5:].astype(float)).var() == pytest.approx(1, rel=0.15)


def test_a_block_that_never_varies_keeps_weight_1():
    encoder, _ = fit(table().with_columns(price=pl.lit(3.0)), {"price": "number", "title": "text"})
    assert encoder.weights[0] == 1.0


def weights_of(**weights):
    encoder, own = fit(table(), **weights)
    return dict(zip(KINDS.values(), encoder.weights, strict=True)), dense(own.matrix)


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_weight_that_is_asked_for_comes_on_top(kind):
    plain, _ = weights_of()
    asked, matrix = weights_of(**{kind: 2})
    assert asked == pytest.approx(plain | {kind: 2 * plain[kind]}, rel=0.01)  # weights have three digits
    assert np.isfinite(matrix).all()


def test_a_weight_that_is_asked_for_holds_for_a_block_alone():
    frame = table().with_columns(id=pl.int_range(200), domain=pl.int_range(200) % 2)
    options = {"impute": True, "features": ["price"]}
    once, twice = (read_graph(frame, None, **options, **more) for more in ({}, {"block_weights": {"number": 2}}))
    assert np.array_equal(twice.x, 2 * once.x)


@pytest.mark.parametrize(
    "weights",
    [{"words": 1.0}, {"unused": 1.0}, {"text": 0}, {"text": -1.0}, {"text": float("nan")}, {"text": float("inf")},
     {"text": True}, {"text": "2"}, {"text": None}, {"text": 1e7}, {"number": 1.0, "txt": 2.0}],
)  # fmt: skip
def test_wrong_weights_are_refused(weights):
    frame = table(20).with_columns(id=pl.int_range(20), domain=pl.int_range(20) % 2)
    with pytest.raises(TableError, match="block weight"):
        read_graph(frame, None, impute=True, block_weights=weights)


def neighbours_of_one_topic(graph, topic):
    """The fraction of nearest neighbours, by the features that groups are found by, that share a node's topic."""
    reduced = reduced_features(graph)
    _, nearest = NearestNeighbors(n_neighbors=11).fit(reduced).kneighbors(reduced)
    return (topic[nearest[:, 1:]] == topic[:, None]).mean()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("numbers", "factor"), [(1, 1.15), (5, 1.8)])
def test_numbers_do_not_drown_the_words(numbers, factor, seed):
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 6, 400)
    own, any_topic = rng.integers(0, 40, (400, 4)) + 40 * topic[:, None], rng.integers(0, 240, (400, 6))
    titles = [" ".join(f"w{word}" for word in (*a, *b)) for a, b in zip(own, any_topic, strict=True)]
    frame = pl.DataFrame({"id": range(400), "domain": np.arange(400) % 2, "title": titles})
    noise = {f"x{k}": rng.normal(size=400) for k in range(numbers)}
    graph = read_graph(frame.with_columns(**noise), None, text=["title"])
    x = dense_x(graph)
    weight = np.array([graph.encoding[name.split(":")[0]]["weight"] for name in graph.feature_names])
    unweighted = graph.with_features(x / weight)
    with_weights, without = (neighbours_of_one_topic(each, topic) for each in (graph, unweighted))
    assert with_weights > factor * without
    assert with_weights > 0.35  # by chance, 0.17


# States


def states():
    encoder, _ = fit(table(120))
    return encoder.to_json()


STATES = states()


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"price": None},
        {"price": {}},
        STATES | {"price": STATES["price"] | {"encoding": "unused"}},
        STATES | {"price": STATES["price"] | {"encoding": ["number"]}},
        STATES | {"price": STATES["price"] | {"more": 1.0}},
        STATES | {"price": {key: value for key, value in STATES["price"].items() if key != "scale"}},
        STATES | {"price": {key: value for key, value in STATES["price"].items() if key != "weight"}},
    ],
    ids=range(9),
)
def test_what_is_no_state_of_an_encoder_is_refused(value):
    with pytest.raises(ValueError, match="lacks fields or has others"):
        TableEncoder.from_json(value)


def test_the_order_of_columns_is_that_of_the_features():
    state = dict(reversed(STATES.items()))
    encoder = TableEncoder.from_json(state)
    assert [column.name for column in encoder.columns] == list(reversed(KINDS))
    kept = TableEncoder.from_json(copy.deepcopy(STATES))
    turned = replace(kept, columns=kept.columns[::-1], weights=kept.weights[::-1])
    assert encoder == turned


# In memory and packed


@pytest.mark.parametrize("chunk_rows", [37, 10_000])
def test_a_packed_graph_has_the_encoder_and_the_features_of_the_one_in_memory(tmp_path, chunk_rows):
    frame = table(300).with_columns(id=pl.int_range(300), domain=pl.int_range(300) % 2)
    frame.write_parquet(tmp_path / "nodes.parquet")
    pl.DataFrame({"a": range(299), "b": range(1, 300)}).write_parquet(tmp_path / "edges.parquet")
    files = (tmp_path / "nodes.parquet", tmp_path / "edges.parquet")
    options = {"text": ["title"], "impute": True, "block_weights": {"text": 1.5}}
    pack(*files, tmp_path / "packed", chunk_rows=chunk_rows, **options)
    packed, graph = open_packed(tmp_path / "packed"), read_graph(*files, **options)
    assert list(packed.encoding) == list(graph.encoding) == ["price", "colour", "title", "image"]
    assert packed.feature_names == graph.feature_names
    assert same_encoding(packed.encoding, graph.encoding)
    assert [state["weight"] for state in packed.encoding.values()] == [
        state["weight"] for state in graph.encoding.values()
    ]
    own, other = (dense_x(each) for each in (packed, graph))
    np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-7)
    again = TableEncoder.from_json(graph.encoding).transform(frame, impute=True).matrix
    np.testing.assert_array_equal(dense(again), other)


def test_a_packed_graph_whose_vectors_are_read_at_once_is_exactly_the_one_in_memory(tmp_path):
    frame = table(300).with_columns(id=pl.int_range(300), domain=pl.int_range(300) % 2)
    frame.write_parquet(tmp_path / "nodes.parquet")
    pl.DataFrame({"a": range(299), "b": range(1, 300)}).write_parquet(tmp_path / "edges.parquet")
    files = (tmp_path / "nodes.parquet", tmp_path / "edges.parquet")
    pack(*files, tmp_path / "packed", text=["title"], impute=True)
    packed, graph = open_packed(tmp_path / "packed"), read_graph(*files, text=["title"], impute=True)
    assert packed.encoding == graph.encoding
    own, other = (dense_x(each) for each in (packed, graph))
    assert np.array_equal(own, other)


def test_vectors_that_are_missing_in_a_whole_chunk_are_packed(tmp_path):
    vectors = [None] * 12 + [[float(k), 2.0] for k in range(18)]
    frame = pl.DataFrame({"id": range(30), "domain": [0, 1] * 15, "v": vectors})
    frame.write_parquet(tmp_path / "nodes.parquet")
    pl.DataFrame({"a": [0], "b": [1]}).write_parquet(tmp_path / "edges.parquet")
    files = (tmp_path / "nodes.parquet", tmp_path / "edges.parquet")
    pack(*files, tmp_path / "packed", chunk_rows=10, impute=True)
    np.testing.assert_allclose(open_packed(tmp_path / "packed").x, read_graph(*files, impute=True).x, rtol=1e-6)
