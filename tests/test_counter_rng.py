import pytest
import torch

from recoslip.learning.networks.random_bits import bernoulli_words, derive, keep_mask, words


def ones(word: torch.Tensor) -> float:
    return float(((word[..., None] >> torch.arange(64)) & 1).double().mean())


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.2, 0.5, 0.75, 0.8, 1.0])
def test_bits_are_one_as_often_as_asked(probability):
    drawn = bernoulli_words(torch.tensor([3]), 20000, probability)  # 1.28 million bits
    assert ones(drawn) == pytest.approx(probability, abs=0.002)


def test_words_are_those_of_splitmix64():
    # First outputs of the reference generator for seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    drawn = words(torch.tensor(1234567), 4).tolist()
    assert [word % 2**64 for word in drawn] == expected


def test_streams_are_unrelated():
    first = words(derive(torch.tensor(1), 0, 5), 5000)
    for other in (derive(torch.tensor(1), 0, 6), derive(torch.tensor(1), 1, 5), derive(torch.tensor(2), 0, 5)):
        assert ones(first ^ words(other, 5000)) == pytest.approx(0.5, abs=0.005)


@pytest.mark.parametrize("width", [1, 4, 8, 13, 64])
def test_a_members_mask_does_not_depend_on_company(width):
    keys = torch.tensor([11, 12, 13])
    together = keep_mask(keys, 57, width, 0.5)
    assert together.shape == (57, 3, width)
    for place in range(3):
        assert torch.equal(together[:, place : place + 1], keep_mask(keys[place : place + 1], 57, width, 0.5))


@pytest.mark.parametrize("keep", [0.5, 0.8])
def test_masks_keep_the_expectation(keep):
    mask = keep_mask(torch.tensor([5, 6]), 4000, 24, keep)
    assert mask.mean().item() == pytest.approx(1, abs=0.01)
    assert mask.unique().tolist() == pytest.approx([0, 1 / keep])
    assert mask.mean(dim=0).std().item() < 0.05  # no column is favoured
