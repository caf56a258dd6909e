"""What the makers of the project run: keeping runs, bundling data, the picture of the README."""
