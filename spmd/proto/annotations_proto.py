"""Fields of any instruction: metadata, frontend attributes, backend config, statistics, original values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from spmd.errors import HloParseError
from spmd.hlo.instruction import NO_ANNOTATIONS, Annotations, OpMetadata
from spmd.proto.metadata_proto import (
    payload_value,
    read_op_metadata,
    read_profile,
    write_op_metadata,
)
from spmd.proto.original_value import original_value_text, write_original_value
from spmd.proto.schema.hlo import HloInstructionProto
from spmd.proto.schema.xla_data import (
    FrontendAttributesProto,
    OpMetadataProto,
    StatisticProto,
    StatisticsVizProto,
    StringEntry,
)
from spmd.shape import Shape
from spmd.text.names import sanitized

#: Names of the field in texts: the current and the former one.
_ORIGINAL_VALUE = ("origin", "original_value")
_STATISTIC = re.compile(r"\s*([^\s={},]+)\s*=\s*([^\s={},]+)\s*(?:,|$)")


class AnnotationReader:
    """Reader of the annotations of one module's instructions; equal bytes give the same records.

    ``payloads``: the module's, which backend configurations and metadata refer to by number.
    """

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self._payloads = payloads
        self._metadata: dict[bytes, tuple[OpMetadata, bytes]] = {}
        self._frontend: dict[bytes, tuple[tuple[str, str], ...]] = {}

    def read(self, proto: HloInstructionProto, shape: Shape) -> Annotations:
        metadata, profile = self._read_metadata(proto)
        annotations = Annotations(
            metadata=metadata,
            frontend_attributes=self._read_frontend(proto),
            backend_config=_backend_config(proto, self._payloads),
            extra=_read_extra(proto, shape),
            profile=profile,
        )
        return NO_ANNOTATIONS if annotations == NO_ANNOTATIONS else annotations

    def _read_metadata(self, proto: HloInstructionProto) -> tuple[OpMetadata, bytes]:
        """Read the metadata that texts have, and the remaining fields undecoded."""
        data = proto.bytes_of(HloInstructionProto.metadata)
        if not data:
            return NO_ANNOTATIONS.metadata, b""
        known = self._metadata.get(data)
        if known is None:
            message = OpMetadataProto(data)
            known = read_op_metadata(message, self._payloads), read_profile(message)
            self._metadata[data] = known
        return known

    def _read_frontend(self, proto: HloInstructionProto) -> tuple[tuple[str, str], ...]:
        data = proto.bytes_of(HloInstructionProto.frontend_attributes)
        if not data:
            return ()
        known = self._frontend.get(data)
        if known is None:
            known = self._frontend[data] = read_frontend_attributes(FrontendAttributesProto(data))
        return known


def _read_extra(proto: HloInstructionProto, shape: Shape) -> tuple[tuple[str, str], ...]:
    extra: list[tuple[str, str]] = []
    statistics = proto.statistics_viz
    if statistics is not None and statistics.statistics:
        extra.append(("statistics", _statistics_text(statistics)))
    if proto.original_value is not None:
        extra.append(("origin", original_value_text(proto.original_value, shape)))
    return tuple(extra)


def write_annotations(proto: HloInstructionProto, annotations: Annotations) -> None:
    if annotations.metadata or annotations.profile:
        proto.metadata = write_op_metadata(annotations.metadata, annotations.profile)
    if annotations.frontend_attributes:
        proto.frontend_attributes = write_frontend_attributes(annotations.frontend_attributes)
    proto.backend_config = annotations.backend_config.encode("utf-8", "surrogateescape")
    for name, text in annotations.extra:
        if name == "statistics":
            proto.statistics_viz = _write_statistics(text)
        elif name in _ORIGINAL_VALUE:
            proto.original_value = write_original_value(text)
        else:
            raise HloParseError(f"the proto cannot hold {name}={text}")


def _backend_config(proto: HloInstructionProto, payloads: Sequence[bytes]) -> str:
    payload = proto.backend_config_payload
    config = proto.backend_config if payload is None else payload_value(payload, payloads)
    return config.decode("utf-8", "surrogateescape")


# ---- frontend attributes
def read_frontend_attributes(proto: FrontendAttributesProto) -> tuple[tuple[str, str], ...]:
    """Return the attributes in the order of the keys, as XLA prints them: a protobuf map has no order."""
    return tuple(sorted({entry.key: entry.value for entry in proto.map}.items()))


def write_frontend_attributes(pairs: tuple[tuple[str, str], ...]) -> FrontendAttributesProto:
    entries: list[StringEntry] = []
    for key, value in pairs:
        entry = StringEntry()
        entry.key, entry.value = key, value
        entries.append(entry)
    proto = FrontendAttributesProto()
    proto.map = entries
    return proto


# ---- statistics
def _statistics_text(proto: StatisticsVizProto) -> str:
    values = "".join(map(_statistic_text, proto.statistics))
    return f"{{visualizing_index={proto.stat_index_to_visualize}{values}}}"


def _statistic_text(proto: StatisticProto) -> str:
    """Return ``,s-1=33``. Raises HloParseError for an empty name or a value that is not finite, which no text can
    express.
    """
    if not proto.stat_name or not math.isfinite(proto.stat_val):
        raise HloParseError(f"the statistic {proto.stat_name!r} cannot be {proto.stat_val}")
    return f",{sanitized(proto.stat_name)}={proto.stat_val:.6g}"


def _write_statistics(text: str) -> StatisticsVizProto:
    """Return the proto of ``{visualizing_index=1,s-1=33,s-2=4.5}``. Raises HloParseError if it cannot hold a number."""
    proto = StatisticsVizProto()
    statistics: list[StatisticProto] = []
    try:
        for found in _STATISTIC.finditer(text.strip()[1:-1]):
            if found[1] == "visualizing_index":
                proto.stat_index_to_visualize = int(found[2])
                continue
            item = StatisticProto()
            item.stat_name, item.stat_val = found[1], float(found[2])
            statistics.append(item)
    except ValueError as error:
        raise HloParseError(f"the proto cannot hold statistics={text}") from error
    proto.statistics = statistics
    return proto
