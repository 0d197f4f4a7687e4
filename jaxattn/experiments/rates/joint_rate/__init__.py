"""How fast does the risk fall where the decoder v is trained together with W?"""
