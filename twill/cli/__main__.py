"""``python -m twill.cli``: the same as the command ``twill``."""

from twill.cli import main

if __name__ == "__main__":
    main()
