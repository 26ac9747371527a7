"""`python -m recoslip` -> the command line."""

from recoslip.products.cli import main

if __name__ == "__main__":
    main()
