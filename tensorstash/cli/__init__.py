"""The command line: shared segments, files, a report on a source, and a benchmark of it.

The room owns the options and what is printed. What they do is in the other rooms.
"""
