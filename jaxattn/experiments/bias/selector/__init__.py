"""Does a selector with an entropy penalty, Gumbel samples, heads or positions obey the SVM that attention obeys?"""
