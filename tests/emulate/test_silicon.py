"""How outputs of the emulator and of a GPU are compared."""

from __future__ import annotations

import numpy as np

from benchmarks.emulate_silicon import distance
from twill.emulate.numbers import from_bits, to_bits


def test_units_in_the_last_place_cross_zero() -> None:
    a = np.array([0x3F80, 0x3F80, 0x0000, 0x8001, 0x8000, 0x7F80], np.uint16)
    b = np.array([0x3F81, 0x3F7F, 0x8000, 0x0001, 0x0002, 0x7F7F], np.uint16)
    np.testing.assert_array_equal(distance(a, b), [1, 1, 0, 2, 2, 1])


def test_bf16_rounds_to_nearest_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -3.1415926, 65504.0])
    np.testing.assert_array_equal(to_bits(values, "bf16"), [0x3F80, 0x3F80, 0x3F82, 0xC049, 0x4780])
    np.testing.assert_allclose(from_bits(to_bits(values, "bf16"), "bf16"), values, rtol=2.0**-8)
    np.testing.assert_array_equal(to_bits(values, "fp16"), values.astype(np.float16).view(np.uint16))
