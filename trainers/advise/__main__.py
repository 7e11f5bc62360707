"""`python -m trainers.advise REQUEST`: measure the steps of a model on this machine, for `python -m reports advise`.

REQUEST is a JSON file (trainers/advise/request.py). Nothing is sent: one process stands for several workers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gradsweep.cli.exit_status import run_command
from gradsweep.errors import UsageError, bad_value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return exit status 0, or that of the error (`gradsweep/cli/exit_status.py`)."""
    words = sys.argv[1:] if arguments is None else arguments
    return run_command("python -m trainers.advise", lambda: _measure(words))


def _measure(words: Sequence[str]) -> int:
    from trainers.advise import methods
    from trainers.advise.request import read_request
    from trainers.advise.sizes import MANY
    from trainers.mpi.process import limit_threads

    if len(words) != 1:
        raise UsageError("valid is python -m trainers.advise REQUEST, which python -m reports advise starts")
    request = read_request(Path(words[0]))
    found, refused = methods.configure(request, MANY)
    config = found[0].config
    limit_threads(config.threads_per_worker)

    import torch

    from compressors.kernels import backend
    from trainers.advise.bench import Computation, explain_errors
    from trainers.advise.rounds import Rounds
    from trainers.advise.samples import make_samples
    from trainers.mpi import staging

    if config.device == "cuda" and not torch.cuda.is_available():
        raise bad_value("--device", "cuda", "cpu: this torch sees no GPU")
    backend.choose(config.kernels)
    is_gpu = config.device != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda", torch.cuda.current_device()) if is_gpu else torch.device("cpu")
    staging.use(device, direct=False)
    with explain_errors(request, config):
        samples = make_samples(request, config)
        computation = Computation(config, samples, device)
    Rounds(request, found, refused, computation).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
