# SPDX-License-Identifier: Apache-2.0
"""The numpy statement of conversions and fp8 blocks, against numbers worked out by hand and, for
F16, against numpy's own type."""
import numpy

from quantise_reference import convert, decode, dequantise, quantise, requantise


def one(value, source, target, **more):
    array = {"F32": numpy.uint32, "F8_E4M3": numpy.uint8}.get(source, numpy.uint16)
    return int(convert(numpy.array([value], dtype=array), source, target, **more)[0])


def test_bf16__is_rounded_to_nearest_even():
    assert one(0x3f808000, "F32", "BF16") == 0x3f80  # half way, down to even
    assert one(0x3f818000, "F32", "BF16") == 0x3f82  # half way, up to even
    assert one(0x3f808001, "F32", "BF16") == 0x3f81
    assert one(0x7f7fffff, "F32", "BF16") == 0x7f80  # too large
    assert one(0x80008001, "F32", "BF16") == 0x8001  # a subnormal, not flushed
    assert one(0x7f800001, "F32", "BF16") == 0x7fc0  # a NaN, never infinity
    assert one(0x8001, "BF16", "F32") == 0x80010000


def test_f16__is_rounded_to_nearest_even():
    assert one(0x477fefff, "F32", "F16") == 0x7bff   # just below 65520
    assert one(0x477ff000, "F32", "F16") == 0x7c00   # 65520, half way to what is too large
    assert one(0x33000000, "F32", "F16") == 0x0000   # 2^-25, half of the smallest
    assert one(0x33000001, "F32", "F16") == 0x0001
    assert one(0x0001, "F16", "F32") == 0x33800000   # 2^-24
    assert one(0xfd55, "F16", "F32") == 0xffeaa000   # a NaN becomes quiet


def test_f16__agrees_with_numpys_own_type():
    bits = numpy.random.default_rng(1).integers(0, 1 << 32, 100_000, dtype=numpy.uint32)
    numbers = bits.view(numpy.float32)
    bits = bits[numpy.isfinite(numbers)]
    with numpy.errstate(over="ignore"):
        want = bits.view(numpy.float32).astype(numpy.float16).view(numpy.uint16)
    assert numpy.array_equal(convert(bits, "F32", "F16"), want)


def test_f8__has_the_numbers_of_its_specification():
    for code, number in {0x00: 0.0, 0x01: 2.0 ** -9, 0x07: 0.875 * 2.0 ** -6, 0x08: 2.0 ** -6,
                         0x38: 1.0, 0x39: 1.125, 0x7e: 448.0, 0xfe: -448.0}.items():
        assert decode(numpy.array([code], dtype=numpy.uint8), "F8_E4M3")[0] == number
    assert one(0xff, "F8_E4M3", "F32") == 0xffc00000
    assert one(0xb8, "F8_E4M3", "F32", scales=0.5) == 0xbf000000
    assert one(0x38, "F8_E4M3", "BF16", scales=1.00390625) == 0x3f80  # half way, to even


def test_quantise__of_a_block_by_hand():
    # amax 448 in the first block: the scale is 1, and the codes are those of the numbers
    numbers = numpy.array([[448, -1, 1.0625, 8], [2 ** -10, -0.0, 1.1875, 4]], dtype=numpy.float32)
    codes, scales = quantise(numbers, (2, 3))
    assert scales.tolist() == [[1.0, numpy.float32(8) / numpy.float32(448)]]
    assert codes.tolist() == [[0x7e, 0xb8, 0x38, 0x7e], [0x00, 0x80, 0x3a, 0x76]]


def test_quantise__of_what_is_no_number():
    inf, nan = numpy.inf, numpy.nan
    numbers = numpy.array([[inf, -inf, nan, 448, 1], [0, 0, 0, 0, -nan]], dtype=numpy.float32)
    numbers[1, 4] = -numpy.float32(nan)
    codes, scales = quantise(numbers, (1, 4))
    least = numpy.float32(1e-10) / numpy.float32(448)
    assert scales.tolist() == [[1.0, numpy.float32(1) / numpy.float32(448)], [least, least]]
    assert codes.tolist() == [[0x7e, 0xfe, 0x7f, 0x7e, 0x7e], [0, 0, 0, 0, 0xff]]


def test_requantise__to_the_same_blocks_keeps_what_has_its_largest_code():
    codes = numpy.array([[0x7e, 0x38], [0x08, 0xfe]], dtype=numpy.uint8)
    scales = numpy.array([[0.25, 0.5]], dtype=numpy.float32)
    assert dequantise(codes, scales, (2, 1)).view(numpy.float32).tolist() == [[112, 0.5], [2.0 ** -8, -224]]
    again, same = requantise(codes, scales, (2, 1), (2, 1))
    assert numpy.array_equal(again, codes) and numpy.array_equal(same, scales)
