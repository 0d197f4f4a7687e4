"""Which max-margin problem does attention obey when it is trained together with the head's v?"""
