"""The commands of `jaxattn`: modules with a function `main(arguments)`, whose docstring is the command's help."""
