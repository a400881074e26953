"""Gram matrices and other statistics of the patches of images."""
