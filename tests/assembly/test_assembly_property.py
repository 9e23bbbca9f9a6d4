"""Random sessions assemble as the slow reference assembles them, or both refuse one turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ._compare import check_against_slow
from ._conversations import Session, sessions

MODES = ("none", "full", "incremental")
modes = pytest.mark.parametrize("mode", MODES)


@modes
@given(data=st.data())
def test_a_sound_session_assembles_as_the_slow_reference_does(
    mode: str, data: st.DataObject
) -> None:
    session: Session = data.draw(sessions(mode))
    check_against_slow(session.records, session.options, session.sent)


@modes
@given(data=st.data())
def test_a_session_with_one_fault_is_refused_where_the_slow_reference_refuses_it(
    mode: str, data: st.DataObject
) -> None:
    session: Session = data.draw(sessions(mode, fault=True))
    check_against_slow(session.records, session.options, session.sent)
