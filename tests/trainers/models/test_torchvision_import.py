"""torchvision works beside a torch whose extension it cannot load."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT

CODE = """
from trainers.models.torchvision_import import import_torchvision
import torch
vision = import_torchvision()
assert vision is import_torchvision()
assert {name for name in ("nms", "qnms") if hasattr(torch.ops.torchvision, name)} == {"nms", "qnms"}
image = torch.arange(3 * 40 * 40, dtype=torch.uint8).reshape(3, 40, 40)
cut = vision.transforms.Compose([vision.transforms.CenterCrop(32), vision.transforms.RandomHorizontalFlip(1.0)])(image)
assert torch.equal(cut, image[:, 4:36, 4:36].flip(2))
model = vision.models.resnet18(num_classes=10).eval()
assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 10)
assert len(vision.datasets.FakeData(size=5)) == 5
"""


def test_transforms_models_and_datasets_work() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
