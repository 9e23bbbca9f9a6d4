"""What an error looks like from outside."""

from __future__ import annotations

import httpx2


def error_of(response: httpx2.Response) -> tuple[int, str, str]:
    """Status, code and text of an error; its body has these two keys and no other."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error", "code"]
    return response.status_code, body["code"], body["error"]


def refusal(response: httpx2.Response) -> tuple[int, str]:
    """Status and code of an error."""
    return error_of(response)[:2]
