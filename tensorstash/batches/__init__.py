"""What the training loop sees: batches in recycled memory, on a device, from a `Loader`.

Only this room knows devices, and it knows nothing of files but whether a stash lies in one. Start with `loader.py`,
whose `__iter__` is a pass. Its batches are made by one of two generators: that of `host.py` gathers on the host, into
recycled memory or into that of `staging.py`, which is copied to a device; that of `resident.py` gathers from columns
that lie on the device. `locator.py` says which windows they hold, and what follows from their ids; `read_ahead.py`
asks a disk for the next ones.
"""
