"""A trained model as a service: predictions and reasons over HTTP, and new rows that count at once."""

from quartet.serve.journal import Journal
from quartet.serve.limits import Limits
from quartet.serve.server import Server, check_token
from quartet.serve.service import Service

__all__ = ["Journal", "Limits", "Server", "Service", "check_token"]
