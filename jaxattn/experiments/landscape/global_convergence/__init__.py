"""When does descent select the optimal tokens: by its first gradient, and by how far the other scores are apart."""
