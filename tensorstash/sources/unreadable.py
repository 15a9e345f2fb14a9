"""What files that cannot be read are instead, by their first bytes and endings, and the line that reads them."""

import os
from contextlib import suppress
from shlex import quote

from tensorstash.sources.file import File

# by ending; `{}` is the path as Python writes it
_READERS = {
    (".json",): "pl.read_json({})",
    (".jsonl", ".ndjson"): "pl.scan_ndjson({})",
    (".txt", ".dat", ".data"): "pl.scan_csv({}, separator=',')",
    (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods"): "pd.read_excel({})",
    (".avro",): "pl.read_avro({})",
    (".pkl", ".pickle"): "pd.read_pickle({})",
    (".h5", ".hdf", ".hdf5"): (
        "pd.read_hdf({0})), or, if pandas did not write it, "
        "ts.load({{name: values[:] for name, values in h5py.File({0}).items()}}"
    ),
    (".dta",): "pd.read_stata({})",
    (".nc",): "xr.open_dataset({}).to_dataframe()",
    (".npy",): "{{'x': np.load({})}}",
    (".npz",): "dict(np.load({}))",
}
_PACKED = {  # the command that unpacks; the first ending counts
    (".zip",): "python -m zipfile -e {} unpacked",
    (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz"): "python -m tarfile -e {} unpacked",
    (".gz",): "python -m gzip -d {}",
    (".bz2",): "bunzip2 {}",
    (".xz",): "unxz {}",
    (".zst",): "unzstd {}",
    (".7z",): "7z x {}",
}
_OTHERS = (
    "Give Parquet, Arrow IPC, ORC or CSV, or in Python a frame that polars or pandas read: ts.load(pl.read_json(...))"
)
_KEYS = (
    "Decrypt it, or load a pyarrow dataset that has its keys: pyarrow.dataset.dataset(path, format=ParquetFileFormat("
    "default_fragment_scan_options=ParquetFragmentScanOptions(decryption_config=...)))."
)
_PAGE = "it is a web page. Take the address of the file itself, on GitHub that of 'Raw'."
# what stands in place of a file, by its first bytes
_OTHER_TEXTS = {
    b"<!doctype": _PAGE,
    b"<html": _PAGE,
    b"version https://git-lfs": "it is what Git LFS keeps in place of a file. Run git lfs pull.",
}


def why_unreadable(file: File, error: Exception) -> str:
    """Why a file is not read, and what to do."""
    start = _first_bytes(file)
    if "encrypt" in str(error).lower():
        return f"it is encrypted. {_KEYS}"
    for beginning, what in _OTHER_TEXTS.items():
        if start.lstrip().lower().startswith(beginning):
            return what
    path = os.path.basename(str(file)) if file.is_http else str(file)
    first = f", once downloaded with urllib.request.urlretrieve(url, {path!r})" if file.is_http else ""
    for endings, reader in _READERS.items():
        if file.name.endswith(endings):
            return f"by its ending it is read as a frame or arrays{first}: ts.load({reader.format(repr(path))})."
    for endings, command in _PACKED.items():
        if file.name.endswith(endings) or (start.startswith(b"PK\x03\x04") and ".zip" in endings):
            return f"it is packed. Unpack it{first}, and load what is in it: {command.format(quote(path))}"
    why = str(error).rstrip(".")
    if "magic bytes" in why:
        why = "its format is not supported, or it is damaged"
    return why if isinstance(error, OSError) else f"{why}. {_OTHERS}."


def _first_bytes(file: File) -> bytes:
    with suppress(Exception), file.open() as opened:
        return bytes(opened.read(64))
    return b""


def remedy_of_damage(error: BaseException) -> str:
    """What to do about values that cannot be decoded."""
    text = str(error).lower()
    if "decrypt" in text or "encrypt" in text:
        return f"It is encrypted. {_KEYS}"
    if "range requests" in text:
        return "Its server hands out whole files only. Download it: urllib.request.urlretrieve(url, path)."
    return "Write the file again."
