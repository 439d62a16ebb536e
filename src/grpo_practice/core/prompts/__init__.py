"""Prompts: reads and compiles their files, and builds the system prompt of an agent."""


# Here, so that code that handles this error need not import Jinja, which takes 30 ms.
class TemplateFault(ValueError):
    """Reason why a template is invalid or cannot be filled with the given values."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(f"line {line}: {message}" if line is not None else message)
        self.line = line
