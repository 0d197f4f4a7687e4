"""How large is the Lipschitz constant of the gradient, compared with the second paper's M and a proved bound?"""
