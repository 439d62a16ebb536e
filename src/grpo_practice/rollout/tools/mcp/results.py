"""A tool's result in the form the model reads: text, with placeholders for other content."""

import json

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from grpo_practice.rollout.tools import Output, ToolError


def output_of(result: CallToolResult) -> Output:
    """Join the text parts, or format structured content; raise ToolError if the tool failed."""
    has_text = any(isinstance(block, TextContent) for block in result.content)
    parts = [_text(block) for block in result.content]
    if not has_text and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text = "\n".join(parts)
    if result.is_error:
        raise ToolError(text or "the tool failed and does not say why")
    return Output(text or "[no content]")


def _text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return f"[{block.type}, {block.mime_type}, {_size(block.data)}]"
        case ResourceLink():
            return f"[link to {block.name}: {block.uri}]"
        case EmbeddedResource():
            inside = block.resource
            if isinstance(inside, BlobResourceContents):
                kind = inside.mime_type or "binary"
                return f"[resource {inside.uri}, {kind}, {_size(inside.blob)}]"
            return inside.text


def _size(base64: str) -> str:
    size = len(base64) * 3 // 4
    return f"{size / 1000:.0f} KB" if size >= 1000 else f"{size} bytes"
