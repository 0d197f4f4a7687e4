"""The numbers of the authors' multi-token figure."""

# Read from it: final 1 - cos, by dimension, from the best description to the worst.
PUBLISHED = {
    "W_SVMeq": {4: 0.034, 6: 0.0166, 8: 0.0112, 10: 0.0056},
    "W_mm": {4: 0.0705, 6: 0.0426, 8: 0.0150, 10: 0.0087},
    "W_1token": {4: 0.155, 6: 0.143, 8: 0.135, 10: 0.12},
}
