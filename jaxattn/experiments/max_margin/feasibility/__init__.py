"""From which dimension d can random tokens be selected?"""
