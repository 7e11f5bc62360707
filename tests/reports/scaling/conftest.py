"""A sweep of known laws, and the model that is fitted to it: once for all tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.reading.report import Report
from reports.scaling.measured import measurements
from reports.scaling.measured.measurements import Measurements
from reports.scaling.model import cross_validation, fit
from reports.scaling.model.predict import Predictor
from tests.reports.scaling import truth

SWEPT = ("compressor", "workers", "network", "seed")


def read(sweep: Path) -> Measurements:
    return measurements.read_measurements(Report([sweep]).merge().runs, SWEPT)


def predictor_of(sweep: Path, **options: Any) -> Predictor:
    found = read(sweep)
    return Predictor(
        found, fit.fit_model(found.cells, found.traffic), cross_validation.cross_validate(found), **options
    )


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep's directory: five methods, three numbers of workers, three networks, 5 % of noise on each phase."""
    return truth.sweep(tmp_path_factory.mktemp("truth") / "2026-11-20" / "10-00-00", noise=0.05)


@pytest.fixture(scope="session")
def predictor(measured: Path) -> Predictor:
    return predictor_of(measured)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Measurements]:
    """The parts of a sweep that is made with these options of `truth.sweep`."""
    return lambda **options: read(truth.sweep(tmp_path / "2026-11-20" / "11-00-00", **options))
