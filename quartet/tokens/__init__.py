"""Contexts and features as tensors. Torch begins here."""

from quartet.tokens.batch import SeedGroup, TableRows, TokenBatch, with_tensors
from quartet.tokens.tokenizer import Tokenizer, shuffled_places

__all__ = ["SeedGroup", "TableRows", "TokenBatch", "Tokenizer", "shuffled_places", "with_tensors"]
