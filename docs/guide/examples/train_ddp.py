"""A plain DistributedDataParallel script over gloo, for a sweep over torch's own gradient hooks.

    python multirun.py -m trainer=script 'trainer.command=[python,train_ddp.py]' ddp.hook=none,fp16,powersgd

It also runs by itself: python train_ddp.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from gradsweep.script import Run

BATCH = 32  # of a rank


def make_data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 2048 inputs, and the classes that a fixed linear teacher gives them."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2048, 32, generator=generator)
    return inputs, (inputs @ torch.randn(32, 10, generator=generator)).argmax(1)


def register_hook(model: DistributedDataParallel, name: str) -> None:
    """Let one of torch's own hooks compress the gradients."""
    if name == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif name != "none":
        raise ValueError(f"ddp.hook={name}: valid is one of none, fp16, powersgd")


def train(run: Run) -> None:
    torch.manual_seed(run.get("seed", 0))
    inputs, labels = make_data()
    held_out, mine = slice(0, 512), slice(512 + run.rank, None, run.size)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 10)))
    register_hook(model, run.get("ddp.hook", "none"))
    rate = run.get("script.lr", 0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    step, saved = 0, run.checkpoint / "state.pt"
    if saved.exists():
        state = torch.load(saved, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        run.resume(step)
    per_epoch = 1536 // run.size // BATCH
    last = min(run.get("epochs", 8) * per_epoch, run.get("max_steps", 10**9))
    run.start()
    while step < last:
        place = step % per_epoch * BATCH
        batch, wanted = inputs[mine][place : place + BATCH], labels[mine][place : place + BATCH]
        output = model(batch)
        loss = nn.functional.cross_entropy(output, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        hits = (output.argmax(1) == wanted).float().mean()
        figures = torch.tensor([loss.item(), hits.item(), float(run.checkpoint_requested())])
        dist.all_reduce(figures)  # the ranks agree whether to stop in this step
        run.step(BATCH * run.size, loss=figures[0] / run.size, accuracy=figures[1] / run.size, lr=rate)
        if figures[2]:
            if run.rank == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, saved)
            run.stop()
            return
        if step % 50 == 0:
            run.read_yardstick()
        if step % per_epoch == 0 or step == last:
            with torch.no_grad():
                output = model.module(inputs[held_out])
            accuracy = (output.argmax(1) == labels[held_out]).float().mean()
            run.epoch(test_accuracy=accuracy, test_loss=nn.functional.cross_entropy(output, labels[held_out]))
    run.finish()


if __name__ == "__main__":
    this_run = Run()  # before torch.distributed, to which it tells this process's rank
    dist.init_process_group("gloo")
    train(this_run)
    dist.destroy_process_group()
