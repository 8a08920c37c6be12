"""The network. Shapes are written with these letters:

B seeds in the batch, b seeds in a part, K local tokens, C context tokens of a seed, R distinct rows,
P distinct context tokens, T distinct times, N tables, A archetypes, Z latents, D width, H heads, M the width
inside a mix.
"""
