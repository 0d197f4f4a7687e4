"""What is the rank of the SVM solutions, and is it lower in the nuclear norm?"""
