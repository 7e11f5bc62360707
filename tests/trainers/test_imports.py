"""What a rank loads later or never."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainers import imports

LIGHT = """
import sys
from trainers import imports
imports.load_torch(compiles=False)
assert not {"torch._decomp", "torch._refs", "torch._dynamo"} & set(sys.modules)
"""

STEP = """
import torch
from torch.optim.sgd import sgd
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(144, 5))
loss = nn.functional.cross_entropy(model(torch.randn(2, 3, 8, 8)), torch.tensor([1, 2]))
loss.backward()
weights = [parameter.detach() for parameter in model.parameters()]
sgd(weights, [parameter.grad for parameter in model.parameters()], [None] * 6, fused=True, lr=0.1, weight_decay=0.1,
    momentum=0.0, nesterov=False, dampening=0.0, maximize=False)
print(float(loss), sum(float(weight.double().sum()) for weight in weights))
"""


def said(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_steps_are_the_same_without_what_is_put_off() -> None:
    assert said(LIGHT + STEP) == said(STEP) != ""


def test_what_was_put_off_is_there_when_it_is_asked_for() -> None:
    said(
        f"{LIGHT}\nimport torch\n"
        "from torch._meta_registrations import meta_index_Tensor\n"
        "assert 'torch._decomp' in sys.modules and callable(torch._meta_registrations.meta_conv)\n"
        "assert torch.nn.Conv2d(3, 4, 3, device='meta')(torch.empty(2, 3, 8, 8, device='meta')).shape == (2, 4, 6, 6)\n"
    )


def test_modules_of_torch_that_come_later_find_it() -> None:
    said(f"{LIGHT}\nimport torch._dynamo\nassert 'torch._decomp' in sys.modules\n{STEP}")
    said(f"{LIGHT}\nfrom trainers.vision import torchvision\nassert torchvision().models.resnet18(num_classes=3)\n")


def test_a_run_that_compiles_has_everything_from_the_start() -> None:
    said(
        "import sys\nfrom trainers import imports\nimports.load_torch(compiles=True)\n"
        "assert 'torch._decomp' in sys.modules\n"
    )


def test_a_hidden_package_is_hidden_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with imports.hidden("colorsys"), pytest.raises(ImportError):
        import colorsys  # noqa: F401
    import colorsys as found

    with imports.hidden("colorsys"):
        import colorsys

        assert colorsys is found
