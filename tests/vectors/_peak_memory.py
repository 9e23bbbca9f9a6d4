"""Prints how much memory each case of the corpus takes above its payload.

Run in a process of its own, which has no other history: Linux only, where the kernel counts
the peak of every kind of memory, whoever allocated it.
"""

from __future__ import annotations

import gc
import json
import sys
import zlib
from pathlib import Path

from sample_wire import DecodeError, Sample, decode_samples, read_container


def _status_kib(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    raise LookupError(key)


def _read(layer: str, data: bytes) -> object:
    try:
        return read_container(data) if layer == "container" else decode_samples(data, Sample())
    except DecodeError:
        return None


def main(corpus: Path) -> None:
    """Prints a JSON object: name of each case to peak KiB above what was there before."""
    cases = [
        case
        for case in json.loads((corpus / "manifest.json").read_text())["cases"]
        if not case.get("heavy")
    ]
    grown = {}
    for case in cases:
        data = (corpus / case["file"]).read_bytes()
        if case["encoding"] == "zlib":
            data = zlib.decompress(data)
        gc.collect()
        before = _status_kib("VmRSS")
        _read(case["layer"], data)
        grown[case["name"]] = _status_kib("VmHWM") - before
    print(json.dumps(grown))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
