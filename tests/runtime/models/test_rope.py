"""The rotary table against its definition, position by position."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from palmette.runtime.checkpoint.config import FrequencyRope, LinearRope, Llama3Rope
from palmette.runtime.models.rope import RopeTable, inverse_frequencies


def test_the_default_is_theta_to_the_minus_2i_over_d() -> None:
    found = inverse_frequencies(8, 10000.0, None)
    assert found.tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001])


def test_linear_and_given_factors_divide() -> None:
    plain = inverse_frequencies(8, 500.0, None)
    assert inverse_frequencies(8, 500.0, LinearRope(4.0)) == pytest.approx(plain / 4)
    factors = (1.0, 2.0, 4.0, 8.0)
    assert inverse_frequencies(8, 500.0, FrequencyRope(factors)) == pytest.approx(plain / np.array(factors))


def test_llama3_keeps_short_waves_divides_long_ones_and_blends_between() -> None:
    """The published rule, written out: by wavelength against the trained context over each factor."""
    scaling = Llama3Rope(8.0, 1.0, 4.0, 8192)
    plain = inverse_frequencies(128, 500000.0, None)
    found = inverse_frequencies(128, 500000.0, scaling)
    kinds = set()
    for before, after in zip(plain, found, strict=True):
        wavelength = 2 * math.pi / before
        if wavelength < 8192 / 4:
            kinds.add("short")
            assert after == pytest.approx(before)
        elif wavelength > 8192 / 1:
            kinds.add("long")
            assert after == pytest.approx(before / 8)
        else:
            kinds.add("between")
            smooth = (8192 / wavelength - 1) / (4 - 1)
            assert after == pytest.approx((1 - smooth) * before / 8 + smooth * before)
    assert kinds == {"short", "long", "between"}


def test_a_position_has_one_row_however_long_the_table() -> None:
    frequencies = inverse_frequencies(64, 10000.0, None)
    short, long = RopeTable(frequencies, 100), RopeTable(frequencies, 5000)
    positions = torch.tensor([0, 99, 3])
    assert all(torch.equal(a, b) for a, b in zip(short.rows(positions), long.rows(positions), strict=True))
    cos, sin = long.rows(torch.tensor([4321]))
    assert cos[0].double().numpy() == pytest.approx(np.cos(4321 * frequencies), abs=1e-7)
    assert sin[0].double().numpy() == pytest.approx(np.sin(4321 * frequencies), abs=1e-7)
