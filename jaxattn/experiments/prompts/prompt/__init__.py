"""Does training a prompt converge in direction to its token SVM, and is training W equivalent?"""
