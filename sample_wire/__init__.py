"""The binary wire between LLM rollout servers and RL trainers."""

from ._container import read_container, write_container
from .codec import SamplesReply, decode_samples, encode_samples
from .errors import (
    AssemblyError,
    ClientError,
    CollectTimeout,
    ContainerError,
    DecodeError,
    EncodeError,
    FieldError,
    GroupError,
    LimitError,
    MetaError,
    SampleWireError,
    SchemaError,
    ServerError,
    SessionError,
    TemplateError,
    VersionError,
)
from .overlay import detach
from .payload import Payload
from .reader import read_fields
from .rows import strip_response, validate
from .sample import PrefixCacheInfo, Sample, SpecInfo, Status
from .schema import Computed, Json, Ragged, SampleBase, Schema, Template, Tensor

__version__ = "0.1.0"

__all__ = [
    "AssemblyError",
    "ClientError",
    "CollectTimeout",
    "Computed",
    "ContainerError",
    "DecodeError",
    "EncodeError",
    "FieldError",
    "GroupError",
    "Json",
    "LimitError",
    "MetaError",
    "Payload",
    "PrefixCacheInfo",
    "Ragged",
    "Sample",
    "SampleBase",
    "SampleWireError",
    "SamplesReply",
    "Schema",
    "SchemaError",
    "ServerError",
    "SessionError",
    "SpecInfo",
    "Status",
    "Template",
    "TemplateError",
    "Tensor",
    "VersionError",
    "decode_samples",
    "detach",
    "encode_samples",
    "read_container",
    "read_fields",
    "strip_response",
    "validate",
    "write_container",
]
