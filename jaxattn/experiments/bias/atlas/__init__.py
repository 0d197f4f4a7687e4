"""The atlas: which norm each rule obeys on W and on (K, Q), with constant and with decreasing steps."""
