"""Does token selection that fits flipped labels generalize, and when?"""
