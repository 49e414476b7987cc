"""Writes tests/goldens/quant: random blocks of every GGUF format and their values as the `gguf` package reads them.

    python tools/make_quant_goldens.py

<format>.blocks holds four blocks (32-value formats: eight), <format>.f32 the values, little-endian.
"""

import pathlib

import gguf
import numpy as np

# Byte offsets of the half-precision fields: random halves may be infinite, so these get small finite ones.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
    "MXFP4": [],
}


def main() -> None:
    out = pathlib.Path(__file__).resolve().parent.parent / "tests" / "goldens" / "quant"
    out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    for name, offsets in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        count = 8 if block == 32 else 4
        data = random.integers(0, 256, (count, size), dtype=np.uint8)
        for offset in offsets:
            halves = random.normal(0, 0.1, count).astype("<f2")
            data[:, offset:offset + 2] = halves.view(np.uint8).reshape(count, 2)
        if name == "MXFP4":
            data[:, 0] = random.integers(118, 128, count)
        (out / f"{name}.blocks").write_bytes(data.tobytes())
        values = gguf.quants.dequantize(data, kind).astype("<f4")
        assert values.size == count * block and np.isfinite(values).all()
        (out / f"{name}.f32").write_bytes(values.tobytes())


if __name__ == "__main__":
    main()
