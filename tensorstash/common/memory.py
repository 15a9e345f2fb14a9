"""Which errors say that the system gave no memory."""

import errno
import os

_TEXTS = os.strerror(errno.ENOMEM), "can't start new thread"  # where libraries tell it in words alone


def lacks_memory(error: BaseException) -> bool:
    """Whether an error means that this process may not have more memory, or addresses for another thread."""
    is_refused = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    return is_refused or any(text in str(error) for text in _TEXTS)
