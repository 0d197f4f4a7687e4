"""How fast does the risk fall when the decoder v is trained together with W?"""
