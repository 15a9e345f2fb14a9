"""Extension types of Arrow, whose values may mean more than the plain type that stores them."""

import re

import pyarrow as pa

_NAME, _PARAMETERS = b"ARROW:extension:name", b"ARROW:extension:metadata"  # of a field whose type nobody registered
_TIMES = re.compile("time|date|period|instant|duration", re.IGNORECASE)


def extension_of(field: pa.Field) -> tuple[str, str]:
    """The name and the parameters of the extension type of a field; empty texts if it has none."""
    if isinstance(field.type, pa.BaseExtensionType):
        serialize = getattr(field.type, "__arrow_ext_serialize__", lambda: str(field.type).encode())
        return field.type.extension_name, serialize().decode("utf-8", "replace")
    metadata = field.metadata or {}
    name, parameters = (metadata.get(key, b"").decode("utf-8", "replace") for key in (_NAME, _PARAMETERS))
    return name, parameters


def is_opaque(field: pa.Field) -> bool:
    """Whether stored values do not say what they mean: those of another system, and times as plain numbers or bytes.

    Texts say it, and so do times of Arrow and structs, whose fields have types of their own.
    """
    name, _ = extension_of(field)
    stored = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if not name or not (pa.types.is_primitive(stored) or pa.types.is_fixed_size_binary(stored)):
        return False
    if pa.types.is_temporal(stored) or pa.types.is_boolean(stored):
        return False
    return _TIMES.search(name) is not None or name == "arrow.opaque" or name.startswith("duckdb.")
