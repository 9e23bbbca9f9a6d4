"""How the figures to reach are measured; those of sessions are in _session_targets.py,
those of the server and the client in _http_targets.py.

Every group of rows is one interleaved run of our call and its peers, so each row's ratio
compares times of the same minutes on the same machine.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Final

import safetensors.numpy

from benchmarks._data import accumulated_ids, plain_text, sample_of, template
from benchmarks._event_loop import Job, longest_gaps_s, send_sliced, send_whole
from benchmarks._figures import Result, Results, against, times_of
from benchmarks._http_targets import client_memory, full_prefix_server, incremental_server
from benchmarks._layouts import layouts
from benchmarks._memory import has_resident_peak, resident_peak, traced_peak
from benchmarks._peers import OURS, format_of, received
from benchmarks._session_targets import assembly, incremental_replies, session_memory
from benchmarks._timing import Effort, compare
from benchmarks._tree_targets import trees
from sample_wire import decode_samples, encode_samples

_SAFETENSORS: Final = "safetensors.numpy"
_MSGPACK: Final = "msgspec.msgpack, memoryviews"


def decode_large(effort: Effort) -> Results:
    """Decoding P from bytes; the peer reads the same bytes, but neither JSON nor template."""
    sample, ids = sample_of("P", "arrays"), accumulated_ids("P")
    wires = {
        "P": bytes(encode_samples([sample])),
        "plain": bytes(encode_samples([plain_text(sample)])),
        "ids": bytes(encode_samples([sample], ids)),
    }
    with_json = format_of(_SAFETENSORS)
    ids_wire = with_json.encode(sample, ids)
    trainers = template()
    times = compare(
        {
            "P": lambda: decode_samples(wires["P"], trainers),
            "plain": lambda: decode_samples(wires["plain"], trainers),
            "ids": lambda: decode_samples(wires["ids"], trainers),
            "load": lambda: safetensors.numpy.load(wires["P"]),
            "load ids": lambda: with_json.decode(ids_wire),
        },
        effort,
    )
    load = times["load"]
    return {
        "decode P": against(times["P"], "safetensors load", load),
        "decode P plain": against(times["plain"], "safetensors load", load),
        "decode P ratio": Result(
            load.median_s / times["P"].median_s, peer=times_of(times["P"], "safetensors load", load)
        ),
        "decode P ids": against(times["ids"], "safetensors load and JSON", times["load ids"]),
    }


def encode_large(effort: Effort) -> Results:
    """Encoding P without joining; the peer's save is one buffer, as it has no other form."""
    arrays, lists, ids = sample_of("P", "arrays"), sample_of("P", "lists"), accumulated_ids("P")
    plain = plain_text(arrays)
    save = format_of(_SAFETENSORS).encode
    times = compare(
        {
            "P": lambda: encode_samples([arrays]),
            "plain": lambda: encode_samples([plain]),
            "lists": lambda: encode_samples([lists]),
            "ids": lambda: encode_samples([arrays], ids),
            "save": lambda: save(arrays, {}),
            "save lists": lambda: save(lists, {}),
            "save ids": lambda: save(arrays, ids),
        },
        effort,
    )
    return {
        "encode P": against(times["P"], "safetensors save", times["save"]),
        "encode P plain": against(times["plain"], "safetensors save", times["save"]),
        "encode P lists": against(times["lists"], "safetensors save", times["save lists"]),
        "encode P ids": against(times["ids"], "safetensors save", times["save ids"]),
    }


def join_large(effort: Effort) -> Results:
    """Encoding P to one buffer, in time and peak memory."""
    sample = sample_of("P", "arrays")
    whole = encode_samples([sample]).contiguous()
    times = compare(
        {
            "join": lambda: encode_samples([sample]).contiguous(),
            "bytes": lambda: bytes(whole),
        },
        effort,
    )
    share = times["join"].median_s / times["bytes"].median_s
    results = {
        "join P": Result(share, peer=times_of(times["join"], "bytes(memoryview)", times["bytes"])),
        "join P traced": Result(traced_peak(sample)),
    }
    if has_resident_peak():
        ours, theirs = resident_peak(OURS[1]), resident_peak(_SAFETENSORS)
        results["join P resident"] = Result(ours, peer="safetensors save", peer_value=theirs)
    return results


def small(effort: Effort) -> Results:
    """S, against the fastest peer at that size."""
    arrays, lists = sample_of("S", "arrays"), sample_of("S", "lists")
    wire = bytes(encode_samples([arrays]))
    peer, trainers = format_of(_MSGPACK), template()
    packed = received(peer.encode(arrays, {}))
    times = compare(
        {
            "arrays": lambda: encode_samples([arrays]),
            "lists": lambda: encode_samples([lists]),
            "decode": lambda: decode_samples(wire, trainers),
            "pack": lambda: peer.encode(arrays, {}),
            "pack lists": lambda: peer.encode(lists, {}),
            "unpack": lambda: peer.decode(packed),
        },
        effort,
    )
    return {
        "encode S": against(times["arrays"], "msgspec.msgpack", times["pack"]),
        "encode S lists": against(times["lists"], "msgspec.msgpack", times["pack lists"]),
        "decode S": against(times["decode"], "msgspec.msgpack", times["unpack"]),
    }


def event_loop(effort: Effort) -> Results:
    """The longest gap of a 1 ms ticker; the peer's body is one bytes object, written whole."""
    arrays, lists, ids = sample_of("P", "arrays"), sample_of("P", "lists"), accumulated_ids("P")
    save = format_of(_SAFETENSORS).encode
    jobs = {
        "gap P": Job(lambda: encode_samples([arrays]), send_sliced),
        "gap P ids": Job(lambda: encode_samples([arrays], ids), send_sliced),
        "gap P lists": Job(lambda: encode_samples([lists]), send_sliced),
        "whole": Job(lambda: [memoryview(save(arrays, {}))], send_whole),
    }
    gaps = longest_gaps_s(jobs, effort.gap_rounds)
    whole = median(gaps.pop("whole"))
    return {
        name: Result(median(times), min(times), "safetensors, written whole", whole)
        for name, times in gaps.items()
    }


GROUPS: Final[tuple[Callable[[Effort], Results], ...]] = (
    small,
    decode_large,
    encode_large,
    join_large,
    layouts,
    event_loop,
    assembly,
    incremental_replies,
    session_memory,
    full_prefix_server,
    incremental_server,
    client_memory,
    trees,
)


def measure_targets(effort: Effort) -> Results:
    """The result of every row, by its key in TARGETS or MEASURED; one is left out where the
    system cannot tell it."""
    results: Results = {}
    for group in GROUPS:
        results.update(group(effort))
    return results
