"""The view of the training loop: recycled memory, devices, and the `Loader`.

Only this room knows devices, and it knows nothing of files. Start with `loader.py`, then `assemble.py`, where a whole
batch is put together, and `devices.py`, how it gets to a device.
"""
