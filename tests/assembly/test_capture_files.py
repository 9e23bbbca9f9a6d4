"""The captures are what the engines sent: their bytes are those that were recorded."""

from __future__ import annotations

import hashlib

import pytest

from ._captures import FOLDER, capture_bytes

SHA256 = {
    "sgl_chat_s11_t4": "a0fe1eae0b42da5b2d4349dd7526f71a6cd22c39b062b02d6b14a5e33e684a45",
    "sgl_misc": "530146237895d57a18b2f0a36d729065794a3d8181f840110a9f187e71dc7e7f",
    "sgl_tito_s31_t6": "dec81ec94528d472c67b669091d0eeb68e43da89edbf4c23cea517495058fa2b",
    "vllm_chat_s12_t4": "e946f9ce4038edfda6c9c7f1cde1ed2b052d08d5bbb448fb415b8f8391961243",
    "vllm_tito_stream_s22_t3": "6609c69d000720b9c412819afb92d769c0f0750b3f1c87df29c853f2c5327bbd",
    "vllm_tito_s21_t5": "268df333e535f215bdd23900b12d93801b21af7a3ac0014eded341beb389f724",
}


@pytest.mark.parametrize("name", SHA256)
def test_a_capture_has_the_bytes_that_were_recorded(name: str) -> None:
    assert hashlib.sha256(capture_bytes(name)).hexdigest() == SHA256[name]


def test_every_capture_is_checked() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} < {*SHA256}
