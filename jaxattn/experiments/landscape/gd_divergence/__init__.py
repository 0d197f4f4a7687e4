"""Does the norm of plain gradient descent grow without end, and does its direction reach that of the SVM solution?"""
