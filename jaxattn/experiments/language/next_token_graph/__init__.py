"""Next-token prediction by attention: token-priority graphs, their SVM, and the finite part within cycles."""
