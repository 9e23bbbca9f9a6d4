"""The recorded demo: a session of real traffic as one payload, beside its records as JSON."""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Any, Final

from .._report import printable, summary_text
from ..codec import decode_samples, encode_samples
from ..inspection import inspect_payload
from ..sample import Sample
from .comparison import comparison
from .equality import differences
from .recording import Recording, build_sample, read_recording

BUNDLED: Final = "vllm_tito_s21_t5.json"
FIELD_SET: Final = 1


def run_recorded(path: str | None = None) -> int:
    """Runs the recorded demo and prints what it finds.

    Args:
        path: a recording of the user's own, or None for the one in the package.

    Returns:
        0, or 1 if what comes back differs from what was sent.

    Raises:
        RecordingError: the recording is of another shape.
        AssemblyError: its turns do not fit together.
        OSError: the file cannot be read.
    """
    print(f"sample-wire demo: {printable(path or BUNDLED)}", flush=True)
    text = Path(path).read_bytes() if path is not None else bundled_recording()
    recording = read_recording(text)
    if path is None:
        print("Real vLLM 0.30.0 traffic; its model's weights were random, so the text is noise.")
    print("The recording has token ids and no tokenizer, so the response text stays empty.\n")
    sample, template = build_sample(recording), make_template()
    metadata = session_metadata(recording)
    wire = encode_samples([sample], metadata, field_set=FIELD_SET).contiguous()
    reply = decode_samples(wire, template, field_set=FIELD_SET)
    faults = differences(sample, reply.samples[0], template, field_set=FIELD_SET)
    if faults:
        print(f"NOT EQUAL after encode and decode: {', '.join(faults)}")
        return 1
    num_fields = len(Sample.__sample_schema__.fields)
    print(f"Encoded, decoded onto a template: all {num_fields} fields are equal, bit for bit.\n")
    print("\n".join(comparison(text, recording, sample, template, metadata)))
    print("\nsample-wire inspect says of this payload:")
    print(summary_text(inspect_payload(wire, field_set=FIELD_SET)))
    return 0


def bundled_recording() -> bytes:
    """The recording that comes with the package; README.md beside it says where it is from."""
    return importlib.resources.files(__package__).joinpath(BUNDLED).read_bytes()


def make_template() -> Sample:
    """A trainer's input sample, made up: what it holds beside its own fields must come back."""
    return Sample(
        group_index=0,
        index=3,
        prompt=[
            {"role": "system", "content": "You may call tools."},
            {"role": "user", "content": "How warm is it, and what is 12 * 7?"},
        ],
        label="84",
        metadata={"task": "demo"},
    )


def session_metadata(recording: Recording) -> dict[str, Any]:
    """What the reply says of the session as a whole."""
    return {"model": recording.turns[0].response.body.model, "num_turns": len(recording.turns)}
