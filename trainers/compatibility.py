"""Run `python -m trainers.rules.compressors` under its former name."""

from trainers.rules.compressors import main

if __name__ == "__main__":
    raise SystemExit(main())
