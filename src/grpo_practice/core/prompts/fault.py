"""The error of a prompt template; importing it does not import Jinja."""


class TemplateFault(ValueError):
    """Reason why a template is invalid or cannot be filled with the given values."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(f"line {line}: {message}" if line is not None else message)
        self.line = line
