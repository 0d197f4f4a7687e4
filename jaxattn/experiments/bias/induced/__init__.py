"""Does steepest descent on (K, Q) obey the norm that the norm of its factors induces on K Q^T?"""
