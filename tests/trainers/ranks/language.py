"""A language model against what is known of its text: `mpirun -n W python -m tests.trainers.ranks.language NAME`."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
from mpi4py import MPI

from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import main
from trainers import data
from trainers.config import run_config
from trainers.rules.resolve import resolve
from trainers.training import loop

COMM = MPI.COMM_WORLD


def compute_entropy(counts: np.ndarray) -> float:
    """Return the entropy, in nats, of the last index of `counts` (..., n) if the others are known."""
    shares = counts / counts.sum(-1, keepdims=True)
    return float((counts * -np.log(shares, where=counts > 0, out=np.zeros(counts.shape))).sum() / counts.sum())


def least_loss() -> None:
    """A small GPT has a loss between the entropy of a generated text and that of its pairs of tokens."""
    weights = np.array([8, 4, 2, 1]) / 15
    entropy = -(weights * np.log(weights)).sum()
    deviation = math.sqrt((weights * np.log(weights) ** 2).sum() - entropy**2)
    directory = Path(COMM.bcast(tempfile.mkdtemp()))
    config = compose_config(
        dataset={"name": "synthetic_text", "order": "windows", "bptt": 32, "vocabulary": 8},
        model={"name": "gpt", "layers": 2, "heads": 4, "width": 64},
        optimizer={"name": "adam", "lr": 1e-2, "beta2": 0.99},
        schedule={"name": "cosine", "warmup_steps": 20, "final": 0.1},
        workers=COMM.size,
        batch={"size": 32},
        epochs=1000,
        max_steps=200,
        evaluate_every_steps=200,
        data={"root": str(directory)},
    )
    run = run_config.parse(resolve(config))
    feed = data.build_feed(run, 0, 1)
    tests = [(inputs.numpy(), labels.numpy()) for inputs, labels in feed.read_test_set(whole=True)]
    pairs = np.zeros((8, 8))
    for inputs, labels in tests:
        np.add.at(pairs, (inputs, labels), 1)
    error = deviation / math.sqrt(pairs.sum())
    assert abs(entropy - 1.1369) < 5e-5
    result = loop.train(run, COMM, directory)
    least, loss = result["least_loss"], result["loss"]
    assert abs(least - entropy) < 3 * error, (least, entropy)
    of_pairs, of_tokens = compute_entropy(pairs), compute_entropy(pairs.sum(0))
    assert least - 3 * error < loss < of_pairs - 0.4 < of_tokens - 0.5, (loss, least, of_pairs, of_tokens)


if __name__ == "__main__":
    main(globals())
