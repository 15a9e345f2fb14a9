"""Rows to tensors: the spans of many windows taken out of blocks of memory in a few vectorized operations.

It is told in integers where the windows stand, and knows nothing of entities, time, order or devices. Start with
`gather.py`.
"""
