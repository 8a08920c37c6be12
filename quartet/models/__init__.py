"""Every model by its name."""

from quartet.models.boosting import Boosting, prepare_boosting
from quartet.models.layers.table_encoder import TableEncoder
from quartet.models.registry import build_model
from quartet.models.trees import Boosted

__all__ = ["Boosted", "Boosting", "TableEncoder", "build_model", "prepare_boosting"]
