# SPDX-License-Identifier: Apache-2.0
"""An independent statement of docs/contents.md: what a made checkpoint and its later versions
hold, and a small safetensors reader. No code of Weft; numpy and xxhash only."""
import json
import pathlib

import numpy
import xxhash

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
# bits of a 64-bit word that stay random, bits that are set
LANES = {"BF16": (0x81FF81FF81FF81FF, 0x3C003C003C003C00),
         "F16": (0x8FFF8FFF8FFF8FFF, 0x2000200020002000),
         "F8_E4M3": (0x9F9F9F9F9F9F9F9F, 0x2020202020202020),
         "F32": (0x81FFFFFF81FFFFFF, 0x3C0000003C000000)}


def checkpoint_tensors(path):
    """name -> (dtype, shape, bytes as a numpy uint8 view) of a folder or one file."""
    path = pathlib.Path(path)
    tensors = {}
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        data = numpy.memmap(file, dtype=numpy.uint8, mode="r")
        size = int.from_bytes(data[:8].tobytes(), "little")
        header = json.loads(data[8:8 + size].tobytes())
        header.pop("__metadata__", None)
        for name, entry in header.items():
            low, high = entry["data_offsets"]
            assert name not in tensors, name
            tensors[name] = (entry["dtype"], entry["shape"], data[8 + size + low:8 + size + high])
    return tensors


def splitmix64(x):
    """Of a Python integer, or of each element of a numpy uint64 array."""
    array = isinstance(x, numpy.ndarray)
    u = numpy.uint64 if array else int
    keep = (lambda v: v) if array else (lambda v: v & MASK)
    x = keep(x + u(GOLDEN))
    x = keep((x ^ (x >> u(30))) * u(0xBF58476D1CE4E5B9))
    x = keep((x ^ (x >> u(27))) * u(0x94D049BB133111EB))
    return x ^ (x >> u(31))


def key_of(name, number):
    return splitmix64((xxhash.xxh64_intdigest(name.encode(), seed=0) + number * GOLDEN) & MASK)


def made_bytes(name, dtype, length, seed):
    """A made tensor's checkpoint bytes."""
    keep, fixed = LANES[dtype]
    counters = numpy.arange((length + 7) // 8, dtype=numpy.uint64) + numpy.uint64(key_of(name, seed))
    words = (splitmix64(counters) & numpy.uint64(keep)) | numpy.uint64(fixed)
    return words.astype("<u8").view(numpy.uint8)[:length]


def changed_bytes(name, data, version, one_in, before=None):
    """The same of versions that differ from the one before in one of `one_in` 16-bit values. `before`: that one, if it is known."""
    values = numpy.zeros((len(data) + 7) // 8 * 4, dtype="<u2")
    values.view(numpy.uint8)[:len(data)] = data
    name_hash = numpy.uint64(xxhash.xxh64_intdigest(name.encode(), seed=0))
    turns = splitmix64(name_hash + numpy.arange(len(values), dtype=numpy.uint64)) % numpy.uint64(one_in)
    if before is not None:
        values.view(numpy.uint8)[:len(data)] = before
    for latest in range(version if before is not None else max(1, version - one_in + 1), version + 1):
        whole = numpy.zeros_like(values)
        whole.view(numpy.uint8)[:len(data)] = version_bytes(name, data, latest)
        values = numpy.where(turns == latest % one_in, whole, values)
    return values.view(numpy.uint8)[:len(data)]


def version_bytes(name, data, version):
    """The bytes of version `version` of a tensor whose checkpoint bytes are `data`."""
    if version == 0:
        return numpy.array(data)
    padded = numpy.zeros((len(data) + 7) // 8 * 8, dtype=numpy.uint8)
    padded[:len(data)] = data
    words = padded.view("<u8")
    steps = numpy.arange(len(words), dtype=numpy.uint64)  # in place: tensors may be large
    steps *= numpy.uint64(2)
    steps += numpy.uint64(1)
    steps *= numpy.uint64(key_of(name, version))
    words += steps
    return padded[:len(data)]
