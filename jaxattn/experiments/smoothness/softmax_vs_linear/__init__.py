"""Is gradient descent more stable with softmax attention than with linear attention, at any scale of embeddings?"""
