"""Does descent that starts far along an SVM solution stay at its tokens exactly where these are locally optimal?"""
