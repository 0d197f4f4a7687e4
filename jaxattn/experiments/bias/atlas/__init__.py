"""The atlas: which norm each rule obeys on W and on (K, Q), with a constant step and with one that falls."""
