"""The `pramana` command."""

from pramana.show.cli import main

if __name__ == "__main__":
    main()
