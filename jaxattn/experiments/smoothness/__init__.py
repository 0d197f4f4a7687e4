"""The second paper: how fast gradients change, softmax against linear attention, and the tensor trick."""
