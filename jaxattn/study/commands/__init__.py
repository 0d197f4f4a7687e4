"""The commands of `jaxattn`: each a module with a function `main(arguments)`, whose docstring is its help."""
