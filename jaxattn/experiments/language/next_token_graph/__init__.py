"""Next-token prediction by attention: token-priority graphs, their SVM, and what is finite within cycles."""
