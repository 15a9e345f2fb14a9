"""From a source to a segment: the request, the plan, the key, decoding, the order of rows, and `ts.load`.

It knows nothing of sampling. Start with `load.py`, then `survey.py` and `write.py`.
"""
