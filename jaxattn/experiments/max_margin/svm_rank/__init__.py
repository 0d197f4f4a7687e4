"""What rank do the SVM solutions have, and is it lower in the nuclear norm?"""
