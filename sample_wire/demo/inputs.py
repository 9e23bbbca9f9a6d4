"""The trainer's input samples: what the rollout is asked to do, and what it must leave as it is."""

from __future__ import annotations

from typing import Final

from ..sample import Sample

_SYSTEM: Final = "Answer the question.  Use the tools for what can be computed."
_QUESTIONS: Final = (
    ("A field is 12 yards by 7 yards.  How many square yards is it?", "84"),
    ("How many metres are 26 miles and 385 yards?", "42195"),
    ("A ladder of 9 feet stands on a wall of 15 feet.  How high is its top, in feet?", "24"),
    ("A rope of 300 inches is cut by 48 inches.  How many inches are left?", "252"),
)


def input_samples() -> list[Sample]:
    """New samples, one for each session: prompts, labels, groups and metadata of their own."""
    return [
        Sample(
            group_index=index // 2,
            index=index,
            rollout_id=100 + index,
            prompt=[
                {"role": "system", "content": _SYSTEM},
                {"role": "user", "content": question},
            ],
            label=answer,
            metadata={"task": "tools", "question": index},
        )
        for index, (question, answer) in enumerate(_QUESTIONS)
    ]
