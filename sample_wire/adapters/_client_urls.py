"""The URLs of session servers, checked before anything is sent."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Sequence
from typing import Final

_SERVER_URL: Final = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?", re.IGNORECASE)


def server_urls(servers: str | Sequence[str]) -> tuple[str, ...]:
    """The URLs of one server or several, without a slash at the end.

    Raises:
        ValueError: there is none, or one that no request can be sent to.
    """
    urls = (servers,) if isinstance(servers, str) else tuple(servers)
    if not urls:
        raise ValueError("a client needs the URL of a server")
    for url in urls:
        if _SERVER_URL.fullmatch(url) is None or not _names_a_host(url):
            raise ValueError(f"a server's URL is http(s)://host:port and maybe a path, not {url!r}")
    return tuple(url.rstrip("/") for url in urls)


def _names_a_host(url: str) -> bool:
    """Whether there is a host that can be looked up, and no port that cannot be."""
    try:
        parts = urllib.parse.urlsplit(url)
        parts.port  # noqa: B018  # looking it up checks it
        return bool((parts.hostname or "").encode("idna"))
    except ValueError:
        return False
