"""The lines that say where and how a report was made.  No name of the host, no path."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from benchmarks._data import SEED

_PACKAGES: Final = (
    *("numpy", "msgspec", "safetensors", "pyarrow", "orjson", "pybase64", "zstandard"),
    *("starlette", "uvicorn", "uvloop", "httpx2"),
)
_GIB: Final = 2**30


def describe(command: str, seed: int = SEED) -> list[str]:
    """Machine, versions, date, seed and command, one Markdown list item each."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return [
        f"- CPU: {cpu()}; memory: {memory_bytes / _GIB:.1f} GiB",
        f"- System: {_system()}; transparent huge pages: {_huge_pages()}",
        f"- Python {platform.python_version()}; {', '.join(map(_version, _PACKAGES))}",
        f"- Date: {datetime.now(UTC):%Y-%m-%d}; seed: {seed}; command: `{command}`",
    ]


def cpu() -> str:
    """The processor, and how many cores of it there are."""
    model = _line_of(Path("/proc/cpuinfo"), "model name") or platform.processor() or "unknown"
    return f"{model}, {os.cpu_count()} cores"


def _line_of(path: Path, key: str) -> str | None:
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()


def _huge_pages() -> str:
    """The chosen one of the kernel's settings, which it shows in brackets."""
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not path.exists():
        return "unknown"
    return path.read_text().partition("[")[2].partition("]")[0]


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"
