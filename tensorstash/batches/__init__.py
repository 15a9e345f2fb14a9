"""What the training loop sees: batches in recycled memory, on a device, from a `Loader`.

Only this room knows devices, and it knows nothing of files but whether a stash lies in one. Start with `loader.py`,
then `assemble.py`, which makes whole batches of windows and mixes, and `devices.py`, which copies them to a
device. `resident.py` gathers batches from columns that lie on a device; `read_ahead.py` asks a disk for the next ones.
"""
