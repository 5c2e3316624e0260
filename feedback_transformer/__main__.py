"""Run the command as `python -m feedback_transformer`."""

from feedback_transformer.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
