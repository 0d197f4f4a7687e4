"""Does plain gradient descent on texts converge to a max-margin solution, with equal and with close scores?"""
