"""Two layers of attention trained together: which Att-SVM does each of them obey?"""
