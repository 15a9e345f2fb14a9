"""Tests with the packages of others, each group in a fresh environment: `pipx run nox`, or `-s adapters` for one."""

import nox


@nox.session
def frameworks(session: nox.Session) -> None:
    """Lightning, Accelerate, transformers, JAX, Keras, TensorDict, Faiss and Hugging Face data sets."""
    session.run("make", "frameworks", "PYTHON=python", external=True)


@nox.session
def adapters(session: nox.Session) -> None:
    """The forecasting packages and writers of lake tables too, without the pins that GluonTS does not allow."""
    session.run("make", "adapters", "PYTHON=python", external=True)
