"""LeNet (LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998) and ATOMO's two networks.

LeNet-5 for 32x32 pixels has 62,006 parameters with three channels, 61,706 with one; for 28x28 with one ATOMO's LeNet
has 431,080 and its fully connected network 1,033,510.
"""

from __future__ import annotations

import math

from torch import nn

from trainers.options import models as options


def build_five(shape: tuple[int, ...], classes: int, pixels: int) -> nn.Sequential:
    """Build LeNet-5 with ReLU and max pooling, as in ChocoSGD, RedSync and pytorch-cifar."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * pixels, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def build_atomo(shape: tuple[int, ...], classes: int, pixels: int) -> nn.Sequential:
    """Build Caffe's LeNet with a ReLU after each max pooling, but none after the hidden layer, as in ATOMO's code."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 20, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(50 * pixels, 500),
        nn.Linear(500, classes),
    )


def build_fully_connected(shape: tuple[int, ...], classes: int, sigmoid: bool) -> nn.Sequential:
    """Build a network with hidden layers of 800 and 500 units; with `sigmoid`, a sigmoid before the softmax as in
    ATOMO's code."""
    layers = [
        nn.Flatten(),
        nn.Linear(math.prod(shape), 800),
        nn.ReLU(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, classes),
    ]
    return nn.Sequential(*layers, nn.Sigmoid()) if sigmoid else nn.Sequential(*layers)


def build(config: options.LeNet | options.FC, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Build the network: input (N, *shape), output (N, classes); the weights are initialised by torch's defaults."""
    if isinstance(config, options.FC):
        return build_fully_connected(shape, classes, config.sigmoid)
    height, width = (((side - 4) // 2 - 4) // 2 for side in shape[1:])
    return (build_five if config.variant == "five" else build_atomo)(shape, classes, height * width)
