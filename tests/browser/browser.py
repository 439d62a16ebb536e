"""The system's Chromium, and what is wrong with a page in it."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.browser.install import AXE, BROWSERS, FOLDER

pytest.importorskip("playwright", reason="make browser-test")

from playwright.async_api import BrowserContext, ConsoleMessage, Page, Route, async_playwright

Scheme = Literal["light", "dark"]
WIDE, NARROW = 1100, 390
SMALLEST_PX = 11
SEEN = FOLDER / "seen"
"""Folder of the pictures of each page that was tried."""

# Letters of a drawing are as small as its scale makes them.
_SMALL = """least => {
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const parent = texts.currentNode.parentElement, text = texts.currentNode.data.trim();
    if (!text || !parent.checkVisibility() || parent.closest('title, desc, .hidden')) continue;
    const matrix = parent instanceof SVGGraphicsElement ? parent.getScreenCTM() : null;
    const scale = matrix ? Math.hypot(matrix.a, matrix.b) : 1;
    const px = parseFloat(getComputedStyle(parent).fontSize) * scale;
    if (px < least) found.push(`${px.toFixed(1)} px: ${text.slice(0, 40)}`);
  }
  return [...new Set(found)].slice(0, 5);
}"""
_WIDER = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  return [...document.body.querySelectorAll('*')]
    .filter(one => one.getBoundingClientRect().right > wide + 1)
    .slice(0, 5).map(one => `${one.tagName}.${one.className}`);
}"""
_AXE = """async () => (await axe.run(document)).violations
  .flatMap(one => one.nodes.slice(0, 3).map(node => `${one.id}: ${node.html.slice(0, 160)}`))"""


@dataclass
class Window:
    """A window of the browser, and what its pages did that they should not."""

    context: BrowserContext
    page: Page
    elsewhere: list[str] = field(default_factory=list)
    """Addresses of other hosts that a page asked for; none of them was sent."""
    console: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    async def look(self, url: str) -> int:
        """Open a page, wait until it is there, and return its status; that of a file is 0."""
        answer = await self.page.goto(url, wait_until="load")
        return 0 if answer is None else int(answer.status)

    async def faults(self, name: str) -> list[str]:
        """Return what is wrong with the page that is open; keep a picture of it under a name."""
        SEEN.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SEEN / f"{name}.png", full_page=True)
        found: list[str] = await self.page.evaluate(_SMALL, SMALLEST_PX)
        found += [f"wider than the window: {one}" for one in await self.page.evaluate(_WIDER)]
        await self.page.evaluate(AXE.read_text("utf-8"))
        found += await self.page.evaluate(_AXE)
        acting = await self.page.locator(".attacked").count()
        found += ["a stored text has become an element"] if acting else []
        found += [f"console: {one}" for one in self.console]
        found += [f"asked for {one}" for one in self.elsewhere]
        found += [f"a dialog: {one}" for one in self.dialogs]
        for kept in (self.console, self.elsewhere, self.dialogs):
            kept.clear()
        return [f"{name}: {one}" for one in found]

    async def tab_to(self, href: str, most: int = 400) -> None:
        """Press Tab until a link to an address that has this part has the focus, in sight."""
        for _ in range(most):
            await self.page.keyboard.press("Tab")
            at = await self.page.evaluate("() => document.activeElement.getAttribute('href') ?? ''")
            if href in at:
                style = "() => getComputedStyle(document.activeElement).outlineStyle"
                assert await self.page.evaluate(style) != "none", "the focus is seen"
                return
        raise AssertionError(f"no link to {href} is reached by {most} tabs")


@asynccontextmanager
async def browsing(
    allowed: str,
    *,
    scheme: Scheme = "light",
    width: int = WIDE,
    script: bool = True,
    scale: int = 1,
) -> AsyncIterator[Window]:
    """Open a window for the block, whose pages may ask for addresses that begin so."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert program is not None, f"install one of {', '.join(BROWSERS)}"
    async with async_playwright() as tools:
        # The browser's own services have no address to ask either.
        nowhere = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
        browser = await tools.chromium.launch(executable_path=program, args=[nowhere])
        context = await browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=script,
            device_scale_factor=scale,
        )
        window = Window(context, await context.new_page())

        async def pass_on(route: Route) -> None:
            if route.request.url.startswith(allowed):
                await route.continue_()
            else:
                window.elsewhere.append(route.request.url[:200])
                await route.abort()

        def hear(message: ConsoleMessage) -> None:
            window.console.append(message.text)

        async def close(dialog: Any) -> None:
            window.dialogs.append(dialog.message)
            await dialog.dismiss()

        await context.route("**/*", pass_on)
        window.page.on("console", hear)
        window.page.on("pageerror", lambda e: window.console.append(str(e)))
        window.page.on("dialog", close)
        try:
            yield window
        finally:
            await browser.close()


def file_url(path: Path) -> str:
    return path.resolve().as_uri()
