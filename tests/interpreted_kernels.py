"""The Triton kernels against PyTorch's operators, for Triton's interpreter, in which `test_kernels.py` runs this."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from recoslip.learning.networks import links, random_bits, sparse_products
from recoslip.learning.networks.links import inner_products
from recoslip.learning.networks.random_bits import derive, drop, keep_mask, relu_and_drop_
from recoslip.learning.networks.sparse_products import Segments, SparseProduct, to_csr

KEYS = torch.tensor([5, -77, 2**62])
CPU = torch.device("cpu")


def take(monkeypatch, can_take):
    for module in (links, random_bits, sparse_products):
        monkeypatch.setattr(module, "can_take", can_take)


@pytest.fixture(autouse=True)
def tensors_on_the_cpu_are_taken(monkeypatch):
    take(monkeypatch, lambda tensor: tensor.dtype == torch.float32)


def test_derived_keys():
    from recoslip.learning.networks.triton_kernels import derive_keys

    for number in (0, 3, torch.tensor(11)):
        assert torch.equal(derive_keys(KEYS, number), derive(KEYS, number))


@pytest.mark.parametrize("keep", [0.5, 0.7, 0.25, 1 - 1e-7, 1e-7])
@pytest.mark.parametrize("width", [7, 32, 64])
def test_dropout_drops_the_same_bits(keep, width):
    h = torch.randn(57, 3, width, generator=torch.Generator().manual_seed(0))
    mask = keep_mask(KEYS, 57, width, keep)
    assert torch.equal(drop(h, KEYS, keep), h * mask)
    assert torch.equal(relu_and_drop_(h.clone(), KEYS, keep), torch.relu(h) * mask)


def test_what_is_no_number_stays_so():
    h = torch.full((9, 3, 8), torch.nan)
    dropped = relu_and_drop_(h, KEYS, 0.5)
    assert torch.equal(dropped.isnan(), keep_mask(KEYS, 9, 8, 0.5) > 0)


def rows_of_many_lengths() -> sp.csr_array:
    rng = np.random.default_rng(0)
    dense = rng.random((50, 90)) * (rng.random((50, 90)) < 0.1)
    dense[3] = 1.0  # longer than a segment
    dense[4] = 0.0  # empty
    return sp.csr_array(dense.astype(np.float32))


@pytest.mark.parametrize("width", [1, 70, 600])
def test_sums_over_rows(width):
    matrix = rows_of_many_lengths()
    segments = Segments.of(to_csr(matrix), CPU, torch.float32)
    assert segments.row is not None
    dense = torch.randn(90, width, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(segments(dense), torch.from_numpy(matrix @ dense.numpy()))


def test_entries_of_a_matrix_and_of_its_transpose_are_dropped_alike():
    matrix, key = rows_of_many_lengths(), KEYS[:1]
    product = SparseProduct.of(matrix, CPU, torch.float32, droppable=True)  # for CPUs
    in_segments = [Segments.of(to_csr(m), CPU, torch.float32) for m in (matrix, matrix.T)]
    dropped = SparseProduct(*in_segments, product.order).dropped(key, 0.6)
    expected = product.dropped(key, 0.6)
    assert torch.equal(dropped.matrix.value, expected.matrix.value)
    assert torch.equal(dropped.transpose.value, expected.transpose.value)
    assert 0.3 < (dropped.matrix.value == 0).float().mean() < 0.5


@pytest.mark.parametrize("width", [5, 32])
@pytest.mark.parametrize("members", [1, 11])
def test_inner_products_and_their_gradient(members, width, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(30, members, width, generator=generator, requires_grad=True)
    left, right = torch.randint(0, 29, (2, 99), generator=generator)  # the last node is in no pair
    weight = torch.randn(99, members, generator=generator)

    def value_and_gradient():
        products = inner_products(g, left, right)
        return products.detach(), torch.autograd.grad((products * weight).sum(), g)[0]

    ours = value_and_gradient()
    take(monkeypatch, lambda tensor: False)
    for mine, plain in zip(ours, value_and_gradient(), strict=True):
        torch.testing.assert_close(mine, plain)
    assert (ours[1][29] == 0).all()
