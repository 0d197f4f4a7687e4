"""Does descent on (K, Q) without a penalty converge to the nuclear solution, and under which step rules?"""
