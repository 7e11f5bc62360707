"""The columns of steps.csv, epochs.csv, local_models.csv, yardstick.csv and race.csv, with their meaning.

docs/reference/columns.md is generated from here.
"""

from __future__ import annotations

PHASES = ("data", "forward", "backward", "encode", "communicate", "decode", "update")
_PHASE_TIMES = {f"{phase}_s": f"time of the phase `{phase}`" for phase in PHASES}

STEP_MEANINGS = {
    "step": "number of optimizer steps so far, from 1",
    "epoch": "number of the epoch, from 1",
    "time_s": "training time since the start of the first step, without evaluation",
    "samples": "number of samples in the global batch",
    "loss": "mean over the global batch",
    "accuracy": "fraction of the global batch that was classified correctly",
    "lr": "learning rate",
    **_PHASE_TIMES,
    "step_s": "time of the whole step; it is longer than the sum of the phases, because of the work between them",
    "payload_bytes": "bytes of one worker's message",
    "sent_bytes": "bytes that one worker sent, by the algorithm of the collective",
    "compression_ratio": "bytes of the fp32 gradient / `payload_bytes`",
    "compression_error": "norm of x - Q(x) / norm of x, where Q(x) is the decoded x; in steps of `measure_every` only",
    "memory_norm": "l2 norm of what the memory (error feedback) withholds; in the same steps only",
}
"""steps.csv: a row for each optimizer step. Times, loss and bytes are means over the workers."""
STEP_COLUMNS = tuple(STEP_MEANINGS)

EPOCH_MEANINGS = {
    "epoch": "number of the epoch, from 1",
    "step": "number of optimizer steps up to this row",
    "time_s": "training time up to this row, without evaluation",
    "lr": "learning rate",
    "train_loss": "mean over the samples since the row before, during their training",
    "train_accuracy": "fraction of these samples that was classified correctly",
    "test_loss": "loss on the test set",
    "test_accuracy": "fraction of the test set that is classified correctly",
    "sent_bytes": "bytes that one worker sent in all steps up to this row",
    "evaluate_s": "time of the evaluation",
}
"""epochs.csv: a row for each evaluation, at the end of every `evaluate_every`-th epoch, or after every
`evaluate_every_steps`-th step, and at the end of the run."""
EPOCH_COLUMNS = tuple(EPOCH_MEANINGS)
TEST = "test_"
"""Prefix of further columns of epochs.csv: the metrics of the run's task by name, on the test set, such as test_mae."""

LOCAL_EPOCH_MEANINGS = {
    "local_test_loss": "mean over the workers of the loss of each worker's own model on the whole test set",
    "local_test_accuracy": "the same mean of the accuracy",
    "local_test_accuracy_least": "accuracy of the worker with the worst model",
    "local_test_accuracy_most": "accuracy of the worker with the best model",
    "consensus_distance": "distance between the models: sqrt(mean_i norm(x_i - mean x)^2) of the parameters x_i",
}
"""Further columns of epochs.csv of a decentralised run, whose test_loss and test_accuracy are those of the workers'
averaged model. The first four are empty with algorithm.evaluate_local=false."""
LOCAL_EPOCH_COLUMNS = tuple(LOCAL_EPOCH_MEANINGS)

LOCAL_MODEL_MEANINGS = {
    "epoch": "number of the epoch, from 1",
    "step": "number of optimizer steps up to this evaluation",
    "worker": "number of the worker, from 0",
    "test_loss": "loss of its own model on the whole test set; empty with `algorithm.evaluate_local=false`",
    "test_accuracy": "accuracy of this model; likewise",
    "distance": "norm of x_i - mean x, for the parameters x_i of the worker",
}
"""local_models.csv of a decentralised run: at every evaluation a row for each worker."""
LOCAL_MODEL_COLUMNS = tuple(LOCAL_MODEL_MEANINGS)

YARDSTICK_MEANINGS = {
    "step": "number of steps before the reading",
    "time_s": "training time so far, without the reading",
    "worker": "number of the worker, from 0",
    "host": "host of the worker",
    "yardstick_s": "CPU time of the fixed piece of work (`trainers/devices/yardstick.py`)",
    "cores_of_others": "fraction of the run's cores on this machine that other processes took since the reading before",
}
"""yardstick.csv: a row for each reading and worker, about once a second of training."""
YARDSTICK_COLUMNS = tuple(YARDSTICK_MEANINGS)

RACE_MEANINGS = {
    "heat": "number of the heat, from 1: if not all runs fit into memory together, there are several",
    "round": "number of the round, from 1",
    "turn": "position of the run in this round, from 1",
    "run": "name of the run's directory",
    "step": "last step of the block, by the run's own count",
    "steps": "number of steps that were timed",
    "step_s": "time of a step",
    **_PHASE_TIMES,
}
"""race.csv: a row for each block of steps. Times are means over its timed steps and the workers."""
RACE_COLUMNS = tuple(RACE_MEANINGS)
