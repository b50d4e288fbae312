"""OpMetadata: where an instruction came from."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.errors import HloParseError
from spmd.hlo.instruction import OpMetadata
from spmd.ops.checks import set_text
from spmd.proto.schema.xla_data import OpMetadataProto, PayloadProto
from spmd.text.annotations_text import format_metadata, read_metadata
from spmd.text.lexer import Scanner, quote, unescape

#: Fields that no text has.
_PROFILE = (
    OpMetadataProto.size_of_generated_code_in_bytes.number,
    OpMetadataProto.size_of_memory_working_set_in_bytes.number,
    OpMetadataProto.profile_info.number,
)
#: Values of the enumeration ProfileType.
_PROFILE_TYPES = range(4)


def read_profile(proto: OpMetadataProto) -> bytes:
    """Return the fields that the text does not have, as a message."""
    profile = OpMetadataProto()
    profile.raws = {number: proto.raws[number] for number in _PROFILE if number in proto.raws}
    return bytes(profile)


def read_op_metadata(proto: OpMetadataProto, payloads: Sequence[bytes] = ()) -> OpMetadata:
    """Return the fields in the order in which XLA prints them. ``payloads``: the module's, to which metadata_payload
    may refer.
    """
    numbers = {
        "source_end_line": proto.source_end_line,
        "source_column": proto.source_column,
        "source_end_column": proto.source_end_column,
    }
    extra = [(name, str(number)) for name, number in numbers.items() if number]
    if proto.profile_type:
        for kind in proto.profile_type:
            if kind not in _PROFILE_TYPES:
                raise HloParseError(f"unknown profile type {kind}")
        extra.append(("profile_type", set_text(proto.profile_type)))
    if proto.deduplicated_name:
        extra.append(("deduplicated_name", quote(proto.deduplicated_name)))
    if proto.scheduling_name:
        extra.append(("scheduling_name", quote(proto.scheduling_name)))
    if proto.stack_frame_id:
        extra.append(("stack_frame_id", str(proto.stack_frame_id)))
    if payload := payload_value(proto.metadata_payload, payloads):
        extra.append(("metadata_payload", quote(payload.decode("utf-8", "surrogateescape"))))
    return OpMetadata(
        proto.op_type, proto.op_name, proto.source_file, proto.source_line, tuple(extra)
    )


def payload_value(proto: PayloadProto | None, payloads: Sequence[bytes]) -> bytes:
    """Return the payload's bytes, which ``proto`` contains or refers to by number; b"" if ``proto`` is None."""
    if proto is None:
        return b""
    if proto.id is None:
        return proto.value
    if not 0 <= proto.id < len(payloads):
        raise HloParseError(f"payload {proto.id} of {len(payloads)}")
    return payloads[proto.id]


def write_op_metadata(metadata: OpMetadata, profile: bytes = b"") -> OpMetadataProto:
    """Return the proto. Fields of ``extra`` that the proto does not have are left out: they mean nothing to the
    program.
    """
    proto = OpMetadataProto(profile)
    proto.op_type = metadata.op_type
    proto.op_name = metadata.op_name
    proto.source_file = metadata.source_file
    proto.source_line = metadata.source_line
    extra = dict(metadata.extra)
    proto.source_end_line = _number(extra, "source_end_line")
    proto.source_column = _number(extra, "source_column")
    proto.source_end_column = _number(extra, "source_end_column")
    proto.stack_frame_id = _number(extra, "stack_frame_id")
    proto.deduplicated_name = _string(extra, "deduplicated_name")
    proto.scheduling_name = _string(extra, "scheduling_name")
    if "profile_type" in extra:
        proto.profile_type = Scanner.of(extra["profile_type"]).integers()
    if "metadata_payload" in extra:
        payload = PayloadProto()
        payload.value = _string(extra, "metadata_payload").encode("utf-8", "surrogateescape")
        proto.metadata_payload = payload
    return proto


def _number(extra: dict[str, str], name: str) -> int:
    return Scanner.of(extra[name]).integer() if name in extra else 0


def _string(extra: dict[str, str], name: str) -> str:
    return unescape(extra[name][1:-1]) if name in extra else ""


# ---- inside of shardings, which keep it as text
def metadata_text(protos: list[OpMetadataProto]) -> str:
    """Return the text of ``metadata={..}``: one record bare, several in braces each."""
    records = [format_metadata(read_op_metadata(proto)) for proto in protos]
    return records[0][1:-1] if len(records) == 1 else ", ".join(records)


def metadata_of_text(text: str) -> list[OpMetadataProto]:
    if not text:
        return []
    scanner = Scanner.of(f"{{{text}}}")
    scanner.expect("{")
    if not scanner.peek("{"):
        return [write_op_metadata(read_metadata(Scanner.of(f"{{{text}}}")))]
    return [write_op_metadata(read_metadata(scanner)) for _ in scanner.items("", "}")]
