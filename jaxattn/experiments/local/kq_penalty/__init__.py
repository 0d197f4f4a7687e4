"""Which max-margin solution does descent on (K, Q) reach with a penalty, and which without?"""
