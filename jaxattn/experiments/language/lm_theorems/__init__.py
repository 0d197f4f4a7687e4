"""Does plain gradient descent on texts tend to a max-margin solution, with equal scores and with close ones?"""
