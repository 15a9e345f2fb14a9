"""`ts.open`: a stash that exists already in a file. One without rows is the reference of a service that starts."""

import os

from tensorstash.stash.open import open_stash
from tensorstash.stash.stash import Stash


def open(path: str | os.PathLike[str]) -> Stash:  # noqa: A001  its name is ts.open
    """Map a stash that `stash.save` wrote. Values are read when they are used, so it may be larger than memory.

    Do not truncate or rewrite the file in place while it is open: values would change, and reading missing bytes ends
    the process (SIGBUS). `stash.save` and `os.replace` replace the whole file, which is safe.

    A stash without rows is for `like=`. When a process opens its first one, it also imports what loads and batches
    need, so that the first request of a service takes about as long as later ones.

    Args:
        path: the file, as `stash.save` or `file=` of `ts.load` wrote it.

    Raises:
        SegmentError: there is no such file, or it is not a whole stash. Its header is checked here, the checksums of
            entities and vocabularies when they are first used; the values of columns have no checksum.

    Example:
        >>> import tensorstash as ts, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "small.safetensors")
        >>> ts.load({"y": [1.0, 2.0]}).save(path)
        >>> ts.open(path)["y"]
        tensor([1., 2.], dtype=torch.float64)
    """
    stash = open_stash(path)
    if not stash.rows:
        from tensorstash.serving.rehearsal import rehearse  # imported here: a rank of a training does without pyarrow

        rehearse()
    return stash
