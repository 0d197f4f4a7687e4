"""Do the margins of the next word over the other candidates start near 0 and become large during training?"""
