# SPDX-License-Identifier: Apache-2.0
"""Conversions and fp8 block quantisation as job/transform.h defines them, in numpy, over arrays of
bits: uint32 for F32, uint16 for BF16 and F16, uint8 for F8_E4M3. No code of Weft and none of its
bit tricks: a number is rounded to the nearest multiple of its step, in float64, where that is
exact."""
import numpy

# name: (exponent bits, mantissa bits, array of bits); F8_E4M3 has no infinity, and one NaN a sign
FORMATS = {"F32": (8, 23, numpy.uint32), "BF16": (8, 7, numpy.uint16),
           "F16": (5, 10, numpy.uint16), "F8_E4M3": (4, 3, numpy.uint8)}
FP8_NAN = 0x7f


def _fields(dtype):
    exponent, mantissa, array = FORMATS[dtype]
    lowest = 2 - (1 << (exponent - 1))  # the exponent of the smallest normal number
    infinity = ((1 << exponent) - 1) << mantissa
    return exponent, mantissa, array, lowest, infinity


def _split(bits, dtype):
    """Sign (0 or 1), magnitude, and where it is NaN."""
    exponent, mantissa, array, _, infinity = _fields(dtype)
    bits = numpy.asarray(bits)
    assert bits.dtype == array, f"{dtype} is given as {bits.dtype}"
    wide = bits.astype(numpy.int64)
    magnitude = wide & ((1 << (exponent + mantissa)) - 1)
    nan = magnitude == FP8_NAN if dtype == "F8_E4M3" else magnitude > infinity
    return wide >> (exponent + mantissa), magnitude, nan


def decode(bits, dtype):
    """The numbers, exact, as float64."""
    _, mantissa, _, lowest, infinity = _fields(dtype)
    sign, magnitude, nan = _split(bits, dtype)
    field, part = magnitude >> mantissa, magnitude & ((1 << mantissa) - 1)
    number = numpy.ldexp(numpy.where(field > 0, part + (1 << mantissa), part).astype(numpy.float64),
                         numpy.maximum(field, 1) - 1 + lowest - mantissa)
    number[nan] = numpy.nan
    if dtype != "F8_E4M3":
        number[magnitude == infinity] = numpy.inf
    return numpy.where(sign == 1, -number, number)


def encode(number, sign, dtype):
    """|number| of float64 with that sign, nearest even; too large is infinity (448 in F8_E4M3).
    NaN is quiet, without payload."""
    exponent, mantissa, array, lowest, infinity = _fields(dtype)
    magnitude = numpy.abs(number)
    finite = numpy.isfinite(magnitude)
    whole = numpy.where(finite, magnitude, 0.0)
    power = numpy.maximum(numpy.frexp(whole)[1] - 1, lowest)
    power[whole == 0] = lowest
    steps = numpy.rint(numpy.ldexp(whole, mantissa - power)).astype(numpy.int64)
    code = ((power - lowest).astype(numpy.int64) << mantissa) + steps
    largest = FP8_NAN - 1 if dtype == "F8_E4M3" else infinity
    code = numpy.minimum(numpy.where(numpy.isinf(magnitude), largest, code), largest)
    quiet = FP8_NAN if dtype == "F8_E4M3" else infinity | 1 << (mantissa - 1)
    code[numpy.isnan(magnitude)] = quiet
    return (code | numpy.asarray(sign).astype(numpy.int64) << (exponent + mantissa)).astype(array)


def convert(bits, source, target, scales=None):
    """Bits of another dtype. A NaN keeps its sign and the upper bits of its payload, and becomes
    quiet; from F8_E4M3, times `scales` (a number, or one an element), it has no payload."""
    if source == target and scales is None:
        return numpy.array(bits)
    sign, magnitude, nan = _split(bits, source)
    number = decode(bits, source)
    if source == "F8_E4M3":
        with numpy.errstate(all="ignore"):
            number = number.astype(numpy.float32) * numpy.asarray(
                1.0 if scales is None else scales, dtype=numpy.float32)
        number = number.astype(numpy.float64)
        negative = numpy.signbit(number)
        return encode(number, numpy.where(numpy.isnan(number), sign == 1, negative), target)
    code = encode(number, sign, target)
    if target != "F8_E4M3":
        _, wide, _, _, _ = _fields(source)
        _, narrow, array, _, _ = _fields(target)
        part = magnitude & ((1 << wide) - 1)
        part = part >> (wide - narrow) if wide >= narrow else part << (narrow - wide)
        code[nan] |= part[nan].astype(array)
    return code


def values(bits, dtype):
    """float32 of bits of F32, BF16 or F16: what quantise() takes."""
    return convert(bits, dtype, "F32").view(numpy.float32)


def _blocks(matrix, block):
    """[block row, row, block column, column], the ragged edges filled with zeros."""
    rows, columns = (-(-size // side) * side for size, side in zip(matrix.shape, block))
    filled = numpy.zeros((rows, columns), dtype=matrix.dtype)
    filled[:matrix.shape[0], :matrix.shape[1]] = matrix
    return filled.reshape(rows // block[0], block[0], columns // block[1], block[1])


def spread(scales, shape, block):
    """The scale of each element's block."""
    return scales.repeat(block[0], axis=0).repeat(block[1], axis=1)[:shape[0], :shape[1]]


def quantise(values_f32, block):
    """(codes uint8, scales float32) of a float32 matrix in blocks of (rows, columns)."""
    assert values_f32.dtype == numpy.float32 and values_f32.ndim == 2
    finite = numpy.where(numpy.isfinite(values_f32), numpy.abs(values_f32), numpy.float32(0))
    amax = numpy.maximum(_blocks(finite, block).max(axis=(1, 3)), numpy.float32(1e-10))
    scales = amax / numpy.float32(448)
    inverse = spread(numpy.float32(1) / scales, values_f32.shape, block)
    with numpy.errstate(all="ignore"):
        scaled = numpy.clip(values_f32 * inverse, numpy.float32(-448), numpy.float32(448))
    sign = numpy.signbit(values_f32)
    return encode(scaled.astype(numpy.float64), sign, "F8_E4M3"), scales


def dequantise(codes, scales, block, dtype="F32"):
    """Bits of `dtype`: each element times the scale of its block."""
    return convert(codes, "F8_E4M3", dtype, spread(scales, codes.shape, block))


def requantise(codes, scales, block_from, block_to):
    """(codes, scales) in other blocks."""
    return quantise(dequantise(codes, scales, block_from).view(numpy.float32), block_to)
