"""Reader and writer of exchanges in machine descriptions and saved executables: untrusted JSON."""

from __future__ import annotations

from spmd.json_fields import JsonFields, shown
from spmd.machine.bounds import COUNT, FACTOR, FRACTION, RATE, SECONDS, SHARE
from spmd.machine.exchange import Exchange, Multicast, Protocol

_SECONDS = ("start", "ring", "tree")
_FRACTIONS = ("attained", "tree_attained")


def exchange_fields(exchange: Exchange) -> dict[str, object]:
    """Return the fields that ``read_exchange`` reads as an equal exchange."""
    fields: dict[str, object] = {
        "name": exchange.name,
        "devices": exchange.devices,
        "bandwidth": exchange.bandwidth,
        "latency": exchange.latency,
        "far": exchange.uncached_slowdown,
        "ports": exchange.ports,
        "attained": exchange.attained,
        "busy": exchange.busy,
    }
    if exchange.protocols:
        fields["protocols"] = [
            {"name": one.name, **{name: getattr(one, name) for name in _SECONDS + _FRACTIONS}}
            for one in exchange.protocols
        ]
    if exchange.multicast is not None:
        fields["multicast"] = {
            "bandwidth": exchange.multicast.bandwidth,
            "latency": exchange.multicast.latency,
        }
    if exchange.source:
        fields["source"] = exchange.source
    return fields


def read_exchange(fields: JsonFields) -> Exchange:
    """Return the exchange in ``fields``. Raises the error of ``fields``, naming the wrong field."""
    exchange = Exchange(
        printable(fields, "name"),
        fields.integer("devices", COUNT),
        fields.number("bandwidth", RATE),
        fields.number("latency", SECONDS),
        fields.number("far", FACTOR, 0.0),
        fields.integer("ports", (0, COUNT[1]), 0),
        fields.number("attained", FRACTION, 1.0),
        fields.number("busy", SHARE, 1.0),
        fields.items("protocols", _protocol) if fields.has("protocols") else (),
        _multicast(fields.nested("multicast")) if fields.has("multicast") else None,
        printable(fields, "source") if fields.has("source") else "",
    )
    fields.done()
    return exchange


def _protocol(fields: JsonFields) -> Protocol:
    protocol = Protocol(
        printable(fields, "name"),
        *(fields.number(name, SECONDS) for name in _SECONDS),
        *(fields.number(name, FRACTION) for name in _FRACTIONS),
    )
    fields.done()
    return protocol


def _multicast(fields: JsonFields) -> Multicast:
    multicast = Multicast(fields.number("bandwidth", RATE), fields.number("latency", SECONDS))
    fields.done()
    return multicast


def printable(fields: JsonFields, name: str) -> str:
    """Return the text of field ``name``. Raises the error of ``fields`` if it has characters that cannot be printed."""
    found = fields.text(name)
    if not found.isprintable():
        raise fields.error(f"{fields.where}: {name} must be printable, found {shown(found)}")
    return found
