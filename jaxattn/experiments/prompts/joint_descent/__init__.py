"""Which max-margin problem does attention obey that is trained together with the head's v?"""
