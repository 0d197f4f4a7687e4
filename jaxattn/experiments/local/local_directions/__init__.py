"""Does descent that starts far along an SVM solution stay at its tokens if and only if these are locally optimal?"""
