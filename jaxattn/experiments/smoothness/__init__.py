"""The second paper: smoothness of the risk, softmax against linear attention, and the tensor trick."""
