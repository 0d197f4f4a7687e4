"""One layer of attention and a linear layer, trained on tasks with a name: formal languages, and the next word."""
