"""What goes wrong, by who can mend it. A wrong argument is a ValueError or a TypeError."""


class QuireError(RuntimeError):
    """The machine or the model failed."""


class ModelError(QuireError):
    """The model is not there, or cannot be used."""


class EngineGone(QuireError):
    """The model was closed, or belongs to the process before fork."""
