"""The whole error tree of the library.

Two families tell whose fault it is: EncodeError is the caller's (a value that would not
come back equal), DecodeError is the payload's.  Every error carries the same five facts, so
that a log line or an HTTP answer can be built without parsing the message.
"""

from __future__ import annotations

from typing import Final

from safetensors import SafetensorError

MAX_TEXT_CHARS: Final = 2000


class SampleWireError(Exception):
    """Base of every error of this library; never raised itself.

    Args:
        message: one sentence that names the field and the rule.  Cut at MAX_TEXT_CHARS.
        field: name of the sample field, or None where the fault is not in one field.
        sample_index: position of the sample in the payload or the argument, or None.
        expected: what the rule asks for, as text, or None.
        got: what was found (a type, shape, dtype or count; never payload content), or None.

    Every instance has these five as attributes (message as `str(error)`), and
    `http_status_hint`: the HTTP status a server should answer with.
    """

    http_status_hint: int = 500

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        sample_index: int | None = None,
        expected: str | None = None,
        got: str | None = None,
    ) -> None:
        super().__init__(message[:MAX_TEXT_CHARS])
        self.field = field
        self.sample_index = sample_index
        self.expected = expected
        self.got = got


class SchemaError(SampleWireError, TypeError):
    """A schema declaration breaks a rule; raised when the class is defined."""


class EncodeError(SampleWireError, ValueError):
    """A value of the caller's that the wire cannot carry unchanged."""

    http_status_hint = 422


class DecodeError(SampleWireError, ValueError):
    """A payload that breaks the wire format; the base of all that decode raises for bytes."""

    http_status_hint = 422


class ContainerError(DecodeError, SafetensorError):
    """The bytes are not one whole safetensors container."""


class MetaError(DecodeError):
    """The JSON in `_samples_meta` is not the one document that the format asks for."""


class FieldError(DecodeError):
    """A field of a sample is missing, superfluous, of a wrong type, or of a wrong length."""


class VersionError(DecodeError):
    """The payload is written in a format that this reader does not know."""


class LimitError(DecodeError):
    """The payload exceeds a limit that the reader was given."""

    http_status_hint = 413


class TemplateError(SampleWireError, ValueError):
    """The caller's template sample already carries computed state."""

    http_status_hint = 422


class AssemblyError(SampleWireError, ValueError):
    """Records that cannot become a sample.

    Attributes:
        turn: number of the turn that is at fault, counted from 1, or None.
    """

    http_status_hint = 422

    def __init__(
        self,
        message: str,
        *,
        turn: int | None = None,
        field: str | None = None,
        expected: str | None = None,
        got: str | None = None,
    ) -> None:
        where = "" if turn is None else f"turn {turn}: "
        super().__init__(where + message, field=field, expected=expected, got=got)
        self.turn = turn

    def __reduce__(self) -> tuple[object, ...]:
        """Keeps the message as it is; it names the turn already."""
        return _rebuilt_assembly_error, (str(self),), self.__dict__


def _rebuilt_assembly_error(message: str) -> AssemblyError:
    return AssemblyError(message)


class SessionError(SampleWireError):
    """A refusal of the session layer, to be answered over HTTP.

    Args:
        code: short and stable, for programs: "unknown_session", "stale_turn", ...
        http_status: the status to answer with.

    Attributes:
        code, http_status_hint: as given.
    """

    def __init__(self, message: str, *, code: str, http_status: int) -> None:
        super().__init__(message)
        self.code = code
        self.http_status_hint = http_status

    def __reduce__(self) -> tuple[object, ...]:
        """Keeps the keyword arguments when pickled."""
        return _rebuilt_session_error, (str(self), self.code, self.http_status_hint)


def _rebuilt_session_error(message: str, code: str, http_status: int) -> SessionError:
    return SessionError(message, code=code, http_status=http_status)


class GroupError(SampleWireError, ValueError):
    """A group of samples that cannot be judged; names the sample by its place in the group."""

    http_status_hint = 422


class ClientError(SampleWireError):
    """A client of ours got no answer that it can use; the cause is chained where there is one."""

    http_status_hint = 502


class ServerError(ClientError):
    """A session server, or an engine, refused: it answered with a status other than 2xx.

    Args:
        status: the HTTP status.
        code: the server's short code, "schema_mismatch" for example, or None where the answer
            is not in the error form of this library.
        text: the server's words, whole; the message of the error may be cut.

    Attributes:
        status, code, text: as given.
    """

    def __init__(self, status: int, code: str | None, text: str) -> None:
        named = "" if code is None else f" {code}"
        super().__init__(f"the server answered {status}{named}: {text}")
        self.status = status
        self.code = code
        self.text = text

    def __reduce__(self) -> tuple[object, ...]:
        """Keeps the three arguments when pickled."""
        return ServerError, (self.status, self.code, self.text)


class CollectTimeout(ClientError, TimeoutError):  # noqa: N818  # named in the public error tree
    """collect took longer than its limit.  It is never retried, and says nothing of the sample."""

    http_status_hint = 504
