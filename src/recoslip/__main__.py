"""`python -m recoslip` -> the command line."""

from recoslip.cli import main

if __name__ == "__main__":
    main()
