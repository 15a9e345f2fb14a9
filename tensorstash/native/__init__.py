"""Arithmetic over integers and bytes that every batch needs: permutations and look-ups.

It knows nothing of columns, windows or files. Start with `permutation.py`.
"""
