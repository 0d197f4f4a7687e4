"""What does descent on factors K and Q of few columns reach, and for which widths does the rank constraint matter?"""
