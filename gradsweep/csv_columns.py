"""The columns of steps.csv, epochs.csv, local_models.csv, yardstick.csv and race.csv, with their meaning."""

from __future__ import annotations

PHASES = ("data", "forward", "backward", "encode", "communicate", "decode", "update")

# steps.csv: one row per optimizer step. Times, loss and bytes are means over the workers.
STEP_COLUMNS = (
    "step",  # optimizer steps taken, from 1
    "epoch",  # from 1
    "time_s",  # training time since the first step began; evaluation is not in it
    "samples",  # in the global batch
    "loss",  # mean over the global batch
    "accuracy",  # share of the global batch that was classified correctly
    "lr",
    *(f"{phase}_s" for phase in PHASES),
    "step_s",  # the whole step; more than the sum of its phases by what lies between them
    "payload_bytes",  # one worker's message
    "sent_bytes",  # what one worker put on the wire, by the collective's algorithm
    "compression_ratio",  # bytes of the fp32 gradient / payload_bytes
    "compression_error",  # ||x - Q(x)|| / ||x||, on the steps where it is measured; else empty
    "memory_norm",  # l2 norm of what memory withholds, on the same steps; else empty
)

# epochs.csv: one row per evaluation, which is at the end of every `evaluate_every`-th epoch and of the run.
EPOCH_COLUMNS = (
    "epoch",
    "step",  # steps taken so far
    "time_s",  # training time so far; evaluation is not in it
    "lr",
    "train_loss",  # mean over the samples since the row before, while they trained
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "sent_bytes",  # by one worker, all steps so far
    "evaluate_s",
)
TEST = "test_"
"""Prefix of further columns of epochs.csv: the metrics of the run's task by name, on the test set, such as test_mae."""
# Of a decentralised run epochs.csv has these as well; test_loss and test_accuracy are those of the average of the
# workers' models there. The first four are empty with algorithm.evaluate_local=false.
LOCAL_EPOCH_COLUMNS = (
    "local_test_loss",  # mean over the workers of what each worker's own model has on the whole test set
    "local_test_accuracy",
    "local_test_accuracy_least",  # of the worker whose model is worst
    "local_test_accuracy_most",
    "consensus_distance",  # sqrt(mean_i ||x_i - mean x||^2) of the parameters
)

# local_models.csv of a decentralised run: after every epoch a row for each worker.
LOCAL_MODEL_COLUMNS = (
    "epoch",
    "worker",  # from 0
    "test_loss",  # of its own model on the whole test set; empty with algorithm.evaluate_local=false
    "test_accuracy",
    "distance",  # ||x_i - mean x||
)

# yardstick.csv: a row a reading and worker, about once a second of training.
YARDSTICK_COLUMNS = (
    "step",  # steps taken before the reading
    "time_s",  # training time so far; the reading is not in it
    "worker",  # from 0
    "host",  # of the worker
    "yardstick_s",  # CPU time of the fixed piece of work (trainers/devices/yardstick.py)
    "cores_of_others",  # share of the run's cores on this machine that other processes took since the reading before
)

# race.csv: a row a block of steps. Times are means over its timed steps and the workers.
RACE_COLUMNS = (
    "heat",  # from 1: where not all runs fit into memory together there are several, each with the baseline
    "round",  # from 1
    "turn",  # of the run in this round, from 1
    "run",  # name of its directory
    "step",  # the last one of the block, by the run's own count
    "steps",  # that were timed; the one before them was not
    "step_s",
    *(f"{phase}_s" for phase in PHASES),
)
