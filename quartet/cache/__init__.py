"""The cache of contexts: one HDF5 file for each set of seeds, whole and checksummed, or absent."""

from quartet.cache.build import Estimate, cache_digest, cached_sample, estimate
from quartet.cache.read import open_cache
from quartet.cache.write import write_cache

__all__ = ["Estimate", "cache_digest", "cached_sample", "estimate", "open_cache", "write_cache"]
