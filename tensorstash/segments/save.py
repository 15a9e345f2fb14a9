"""Copying a segment to a file of the user's choice, which appears whole or not at all."""

import contextlib
import os
import secrets

from tensorstash.errors import SegmentError
from tensorstash.segments.durable import sync_directory_of, sync_file
from tensorstash.segments.segment import Segment


def save(segment: Segment, path: str) -> None:
    """Write the file to `path`. It replaces a file there when it is whole and on disk; links are followed."""
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        raise SegmentError(f"A stash is saved as a regular file; {path} exists and is not one. Choose another name.")
    draft = f"{target}.{secrets.token_hex(8)}.tmp"
    try:
        with open(draft, "xb") as file:
            for _, chunk in segment.chunks():
                file.write(chunk)
            file.flush()
            sync_file(file.fileno())
        os.replace(draft, target)
        sync_directory_of(target)
    except OSError as error:
        raise SegmentError(
            f"A stash of {segment.size / 1e6:,.1f} MB cannot be saved as {path}: {error.strerror}. Choose a path in an "
            "existing directory that you can write to and that has room for it."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)
