"""Values: what may be recorded, how it is written, and how it comes back.

Reading order: `tagging` (the recorded form), `adapters` (annotations), `codec` (the two together),
`signature` (arguments and results of one function), `failures` (exceptions).
"""

from .codec import MAX_BYTES, Codec
from .failures import decode_failure, describe, encode_failure, remote_traceback
from .registry import TypeRegistry, default_types, register_serializable, serializable
from .signature import Signature, digest

__all__ = [
    "Codec",
    "MAX_BYTES",
    "Signature",
    "digest",
    "TypeRegistry",
    "default_types",
    "register_serializable",
    "serializable",
    "encode_failure",
    "decode_failure",
    "describe",
    "remote_traceback",
]
