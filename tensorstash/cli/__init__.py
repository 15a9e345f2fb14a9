"""The command line: shared segments, files, and a report on a source.

The room owns the options and what is printed. What they do is in the other rooms.
"""
