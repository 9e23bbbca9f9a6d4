"""What processes take of the memory, and how much there is; None where the system does not tell."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_KIB: Final = 1024
_RESET_PEAK: Final = "5"


def resident_bytes(pid: int) -> int | None:
    """The resident set of a process."""
    return _sizes(Path(f"/proc/{pid}/status")).get("VmRSS")


def peak_bytes(pid: int) -> int | None:
    """The largest resident set of a process since its start, or since it was forgotten."""
    return _sizes(Path(f"/proc/{pid}/status")).get("VmHWM")


def forget_peak(pid: int) -> None:
    """Lets the peak begin again at what the process takes now; does nothing where it cannot."""
    path = Path(f"/proc/{pid}/clear_refs")
    if path.exists():
        path.write_text(_RESET_PEAK)


def available_bytes() -> int | None:
    """The memory that processes can still get."""
    return _sizes(Path("/proc/meminfo")).get("MemAvailable")


def _sizes(path: Path) -> dict[str, int]:
    """The sizes that one of the kernel's files tells, in bytes."""
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        if unit == "kB":
            found[name] = int(number) * _KIB
    return found
