"""What does descent on factors K and Q of few columns reach, and where does their width matter?"""
