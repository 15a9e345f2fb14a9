"""One copy per machine: the first process builds a segment, the others wait for it and attach it.

A name is given once, and to a whole file. So several processes may build the same segment: the first to publish wins,
and the others attach its file.
"""

import os
import time
from collections.abc import Callable
from hashlib import blake2b

from tensorstash.segments.attach import attach_name
from tensorstash.segments.directory import Directory, Name, opened
from tensorstash.segments.draft import resize, write
from tensorstash.segments.limits import check_free
from tensorstash.segments.lock import acquire, lock_file, note
from tensorstash.segments.segment import Segment
from tensorstash.segments.unpublished import UnpublishedFile

# writes a whole segment to the file, and reports from time to time which fraction is done
Build = Callable[[UnpublishedFile, Callable[[float], None]], None]


def obtain(name: Name, build: Build, timeout: float | None) -> Segment:
    """The segment of that name: attached if it exists, otherwise built by one of the processes that ask for it.

    Raises `TimeoutError` if another process has not finished within `timeout` seconds. A process that waited for one
    that failed gets the same error.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        with opened() as directory:
            segment = attach_name(directory, name)
            if segment is not None:
                return segment
            with lock_file(directory, name) as lock:
                if acquire(lock, name, deadline):
                    return attach_name(directory, name) or _build_shared(directory, name, lock, build)


def _build_shared(directory: Directory, name: Name, lock: int, build: Build) -> Segment:
    target = UnpublishedFile(directory, name.label)
    segment = built(target, lock, build, lambda: target.publish(name))
    segment.populate()
    return segment


def built(target: UnpublishedFile, lock: int, build: Build, publish: Callable[[], Segment]) -> Segment:
    """Build a segment and publish it, while the lock says how far it is, and at the end why it failed."""
    note(lock, {"pid": os.getpid(), "done": 0.0})
    try:
        build(target, lambda done: note(lock, {"pid": os.getpid(), "done": done}))
        return publish()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise  # the next process in line takes over
    except BaseException as error:
        note(lock, {"error": type(error).__name__, "message": str(error)})
        raise
    finally:
        target.close()


def share_copy(segment: Segment, label: str) -> Segment:
    """A copy of a segment under a label. Its key is a hash of all its bytes."""
    digest = blake2b(digest_size=32)
    with opened() as directory:
        target = UnpublishedFile(directory, label)
        try:
            check_free(
                segment.size,
                target.limits(),
                "A stash must fit into free memory",
                f"a copy of it for share({label!r})",
                "Remove what nobody needs: ts.shared.list(), ts.shared.remove(label), ts.shared.prune(...).",
            )
            resize(target.fd, segment.size)
            for begin, chunk in segment.chunks():
                digest.update(chunk)
                write(target.fd, memoryview(chunk), begin)
            return target.publish(Name(label, digest.hexdigest()[:16]))
        finally:
            target.close()
