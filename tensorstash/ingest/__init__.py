"""From a source to a segment: the request, the choice, the plan, the keys, decoding, the order of rows, `ts.load`.

It knows nothing of sampling. A load goes from `load.py` to `survey.py`, which makes a `Choice`, and on to `keys.py` and
`write.py`.
"""
