"""Random containers for the fuzzer: built to be nearly right, then bent, spelled oddly, or cut.

Every choice comes from one seeded generator, so that a seed stands for its inputs.
"""

from __future__ import annotations

import json
import math
from random import Random
from typing import Final

from vectors._wire import ITEM_BYTES, framed

# Dtypes that the format has and numpy lacks, with their bits.
OTHER_DTYPES: Final = {
    "BF16": 16,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
}
_NO_DTYPES: Final = ("", "u8", "U8 ", "U128", "uint8", "<f4", "|b1", "O", "Bool", "\u0055\u0445")
_NAMES: Final = (
    "a",
    "b",
    "tokens.0",
    "_samples_meta",
    "",
    "__metadata__",
    "\u4e2d",
    "\U0001f600",
    'q"\\/',
    "\x00",
    "e\u0301",
)
_BIG_AXES: Final = (2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30)
_SPACE: Final = (" ", "  ", "\t", "\n", "\r", "\r\n ")
_NO_SPACE: Final = ("\f", "\v", "\0", "\xa0", "\ufeff", "/**/")
_BYTES: Final = b'{}[]",:\\0123456789-+.eEu \t\n\r\x00\xff/tfn'


class Speller:
    """Spells JSON tokens: mostly as writers do, now and then in other ways, right or wrong.

    Args:
        rng: makes every choice.
        chance: how likely each thing is to be odd.
        once: how many things come before the only one that is odd whatever the chance; single
            faults find what a second one would hide.
    """

    def __init__(self, rng: Random, chance: float, once: int) -> None:
        self._rng = rng
        self._chance = chance
        self._once = once

    def odd(self) -> bool:
        """Whether the next thing is to be odd."""
        self._once -= 1
        return self._once == 0 or (self._chance > 0 and self._rng.random() < self._chance)

    def space(self) -> str:
        """White space between two tokens, or what only looks like it."""
        if not self.odd():
            return ""
        return self._rng.choice(_NO_SPACE if self._rng.random() < 0.1 else _SPACE)

    def text(self, value: str) -> str:
        """A JSON string."""
        plain = json.dumps(value, ensure_ascii=False)
        if not self.odd():
            return plain
        rng = self._rng
        escaped = json.dumps(value)
        return rng.choice(
            (
                escaped,
                '"' + "".join(f"\\u{ord(char) & 0xFFFF:04X}" for char in value) + '"',
                plain.replace("/", "\\/"),
                plain[:-1],
                f"'{value}'",
                rng.choice(('"\\ud800"', '"\\udc00x"', '"\\x41"', '"\x01"', "null", "1", "[]")),
            )
        )

    def number(self, value: int) -> str:
        """A size, or nearly one."""
        if not self.odd():
            return str(value)
        rng = self._rng
        return rng.choice(
            (
                f"{value}.0",
                f"{value}e0",
                f"0{value}",
                f"-{value}",
                f"+{value}",
                f'"{value}"',
                str(value + rng.choice((-1, 1, 8))),
                str(value + 2**64),
                str(rng.choice(_BIG_AXES)),
                rng.choice(("null", "true", "[]", "NaN", "-0", "0x0", "", "1E1", "9" * 400)),
            )
        )


class ContainerInputs:
    """Endless inputs of one seed; `next_input` gives the next."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._last = framed("{}")

    def next_input(self) -> bytes:
        """A container, mostly not quite right."""
        rng = self._rng
        chance = rng.choice((0.0, 0.0, 0.0, 0.0, 0.05, 0.2))
        once = rng.randrange(rng.choice((1, 10, 30, 100)))
        data = self._structured(Speller(rng, chance, once))
        if rng.random() < 0.25:
            for _ in range(rng.choice((1, 1, 2, 4))):
                data = mutated(rng, data, self._last)
        else:
            self._last = data
        return data

    def _structured(self, speller: Speller) -> bytes:
        rng = self._rng
        entries: list[tuple[str, str]] = []
        body: list[bytes] = []
        position = 0
        for _ in range(rng.choice((0, 1, 1, 2, 3, 5))):
            dtype, shape, data = self._tensor(speller)
            entry = self._entry(speller, dtype, shape, position, position + len(data))
            entries.append((self._name(speller), entry))
            position += len(data)
            body.append(data)
        if rng.random() < 0.15:
            entries.append(("__metadata__", self._metadata(speller)))
        if rng.random() < 0.3:
            rng.shuffle(entries)
        return self._framed(speller, entries, b"".join(body))

    def _framed(self, speller: Speller, entries: list[tuple[str, str]], body: bytes) -> bytes:
        rng = self._rng
        header = _object(speller, entries)
        if rng.random() < 0.5:
            header += rng.choice((" ", " ", "\n", "\t", "\0")) * (-len(header.encode()) % 8)
        if speller.odd():
            header = speller.space() + header + speller.space()
        if speller.odd():
            body = rng.choice((body[:-1], body + b"\0", b"", body + bytes(8)))
        data = framed(header.encode(), body)
        if speller.odd():
            length = max(len(header) + rng.choice((-1, 1, 8, 2**31, 2**60)), 0)
            data = length.to_bytes(8, "little") + data[8:]
        return data

    def _name(self, speller: Speller) -> str:
        rng = self._rng
        if speller.odd():
            return rng.choice(_NAMES)
        return f"x{rng.randrange(10**6)}"

    def _tensor(self, speller: Speller) -> tuple[str, list[int], bytes]:
        rng = self._rng
        shape = [rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(rng.choice((0, 1, 1, 2, 3, 4)))]
        if speller.odd():
            shape += rng.choice(([1] * 29, [1] * 32, [1] * 63, [0, rng.choice(_BIG_AXES)]))
            rng.shuffle(shape)
        if speller.odd():
            dtype = rng.choice((*OTHER_DTYPES, *_NO_DTYPES))
            size = math.prod(shape) * OTHER_DTYPES.get(dtype, 8) // 8
        else:
            dtype = rng.choice(list(ITEM_BYTES))
            size = math.prod(shape) * ITEM_BYTES[dtype]
        data = rng.randbytes(min(size, 4096))
        if dtype == "BOOL" and not speller.odd():
            data = bytes(byte & 1 for byte in data)
        return dtype, shape, data

    def _entry(self, speller: Speller, dtype: str, shape: list[int], start: int, stop: int) -> str:
        rng = self._rng
        if speller.odd():
            shift = rng.choice((-1, 1, 4, 8))
            start, stop = rng.choice(
                (
                    (start + shift, stop + shift),
                    (start + shift, stop),
                    (start, stop + shift),
                    (stop, start),
                )
            )
        axes = _array(speller, [speller.number(axis) for axis in shape])
        offsets = _array(speller, [speller.number(start), speller.number(stop)])
        items = [("dtype", speller.text(dtype)), ("shape", axes), ("data_offsets", offsets)]
        if speller.odd():
            return self._odd_entry(speller, items)
        return _object(speller, items)

    def _odd_entry(self, speller: Speller, items: list[tuple[str, str]]) -> str:
        rng = self._rng
        key, value = rng.choice(items)
        kind = rng.randrange(7)
        if kind == 0:
            return _array(speller, [text for _, text in items])
        if kind == 1:
            rng.shuffle(items)
        elif kind == 2:
            items.remove((key, value))
        elif kind == 3:
            items.append((key, value))
        elif kind == 4:
            items.append((rng.choice(("x", "Dtype", "")), rng.choice((value, "{}", "1.5", "null"))))
        elif kind == 5:
            items.append(("deep", "[" * 130 + "]" * 130))
        else:
            return rng.choice(("null", "{}", "[]", "4", value))
        return _object(speller, items)

    def _metadata(self, speller: Speller) -> str:
        rng = self._rng
        if speller.odd():
            return rng.choice(("null", "[]", '"x"', '{"k":null}', '{"k":1}', '{"k":"1","k":"2"}'))
        count = rng.randrange(3)
        return _object(speller, [(f"k{index}", speller.text("v")) for index in range(count)])


def mutated(rng: Random, data: bytes, other: bytes) -> bytes:
    """The bytes with one small change: flipped, replaced, cut, doubled, or spliced with others."""
    if not data:
        return other
    at, stop = rng.randrange(len(data)), rng.randrange(len(data) + 1)
    kind = rng.randrange(8)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind in (1, 2):
        return data[:at] + bytes([rng.choice(_BYTES)]) + data[at + 1 :]
    if kind == 3:
        return data[:at] + data[at + rng.randrange(1, 9) :]
    if kind == 4:
        return data[:at] + bytes([rng.choice(_BYTES)]) + data[at:]
    if kind == 5:
        return data[:at] + data[min(at, stop) : max(at, stop)] + data[at:]
    if kind == 6:
        return data[:at]
    return data[:at] + other[min(stop, len(other)) :]


def _object(speller: Speller, items: list[tuple[str, str]]) -> str:
    space = speller.space
    pairs = [f"{space()}{speller.text(key)}{space()}:{space()}{value}" for key, value in items]
    return f"{{{','.join(pairs)}{space()}}}"


def _array(speller: Speller, items: list[str]) -> str:
    space = speller.space
    return f"[{','.join(f'{space()}{item}' for item in items)}{space()}]"
