"""The training loop's view: recycled memory, devices, and the `Loader`.

It alone knows devices, and knows nothing of files. Start with `loader.py`.
"""
