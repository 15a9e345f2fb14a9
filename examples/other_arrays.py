"""Batches for JAX and Keras, and Faiss and hnswlib over a column, without a copy where that is possible.

    python examples/other_arrays.py

Needs `pip install jax keras faiss-cpu hnswlib`.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")

import faiss
import hnswlib
import jax.numpy as jnp
import keras
import numpy as np
import torch

import tensorstash as ts

DATA = os.path.join(os.path.dirname(__file__), "data", "nyc_weather.parquet")


def main() -> None:
    """Count the batches that JAX had to copy, train with Keras, and search with Faiss and hnswlib."""
    stash = ts.load(
        DATA, {"x": ["temp", "dewp", "humid"], "y": "temp"}, entity="origin", time="time_hour", dtype=torch.float32
    )
    windows = ts.Windows(stash, spans={"past": ("x", -48, 0), "target": ("y", 0, 6)}, require=["past", "target"])
    loader = ts.Loader(windows, batch_size=256, shuffle=True, seed=0)

    # DLPack hands over the memory: it is used again only when the array of JAX is gone too
    copied = steps = 0
    for batch in loader:
        array = jnp.from_dlpack(batch["past"])
        copied += array.unsafe_buffer_pointer() != batch["past"].data_ptr()
        steps += 1
    sys.stdout.write(f"jax: {copied} of {steps} batches copied\n")

    # Keras takes NumPy arrays from a generator; .numpy() is a view
    def batches() -> Iterator[tuple[Any, Any]]:
        for batch in loader:
            yield batch["past"].flatten(1).numpy(), batch["target"].numpy()

    model = keras.Sequential([keras.layers.Dense(6)])
    model.compile("adam", "mae")
    history = model.fit(batches(), epochs=1, steps_per_epoch=20, verbose=0).history
    sys.stdout.write(f"keras: {'trained' if np.isfinite(history['loss'][0]) else 'failed'}\n")

    # Faiss reads the column where it lies; an index that stores its vectors would copy them
    vectors = stash["x"].numpy()
    assert vectors.ctypes.data == stash["x"].data_ptr()
    _, nearest = faiss.knn(vectors[100:105], vectors[:1000], 1)
    same = bool((vectors[nearest[:, 0]] == vectors[100:105]).all())
    sys.stdout.write(f"faiss: {'found' if same else 'failed'}\n")

    # the index of hnswlib stores its vectors, so it holds a copy whatever it is given
    graph = hnswlib.Index("l2", dim=vectors.shape[1])
    graph.init_index(max_elements=1000)
    given = vectors[:1000].copy()
    graph.add_items(given)
    given[:] = 0
    kept = np.array_equal(np.asarray(graph.get_items([5])), vectors[5:6])
    sys.stdout.write(f"hnswlib: {'a copy' if kept else 'a view'}\n")


if __name__ == "__main__":
    main()
