"""Run `python -m sweep.provenance.calibration` under its former name."""

from sweep.provenance.calibration import main

if __name__ == "__main__":
    main()
