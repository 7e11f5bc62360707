"""Run `python -m trainers.consensus` under its former name."""

from trainers.consensus.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
