"""The models. Other rooms reach them through `quartet.registry`, which knows each by its name."""
