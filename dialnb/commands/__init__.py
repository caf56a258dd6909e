"""The command line, one module per topic: `register(subparsers)`, with heavy imports inside the functions."""
