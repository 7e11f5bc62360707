"""Report the progress of a training script of your own to Gradsweep (docs/guide/own-scripts.md). Standard library only.

    from gradsweep.script import Run

    run = Run()                                    # on every rank, before torch.distributed is used
    hook = run.get("ddp.hook", "none")             # a key of the run's config
    ...
    run.start()                                    # the set-up is done
    for epoch in range(run.get("epochs", 10)):
        for inputs, labels in loader:
            ...
            run.step(samples=128, loss=loss)
        run.epoch(test_accuracy=accuracy)
    run.finish()

All ranks call the same methods, and rank 0 writes. Outside of Gradsweep nothing is written, and the config is empty.
"""

from __future__ import annotations

from gradsweep.script.run import Run

__all__ = ["Run"]
