"""The room of the native kernel: what numpy and torch do too, faster, in one file of plain C.

It owns `gather.c`, how its compiled form is found and loaded (`library`), and how it is called (`kernel`). It knows
integers, addresses and bytes, and nothing above: no columns, windows, loaders or files. Where it is absent, numpy and
torch do the same, bit by bit.
"""
