"""Run `python -m trainers.rules` under its former name."""

from trainers.rules.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
