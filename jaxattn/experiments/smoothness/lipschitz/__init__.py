"""How large is the Lipschitz constant of the gradient, beside the second paper's M and a bound that is proved?"""
