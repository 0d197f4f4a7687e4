"""From which dimension d on can random tokens be selected?"""
