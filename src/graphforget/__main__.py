"""`python -m graphforget` is the command line."""

from graphforget.cli.app import main

if __name__ == "__main__":
    main()
