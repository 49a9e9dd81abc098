"""Checks of a page in a browser: names of controls, contrast, sizes for fingers, and its width."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

CONTRAST_MIN = 4.5
"""Contrast of texts, by WCAG 2.2 AA; texts of 24 px and more need 3, which none is given here."""
FINGER_MIN = 44
"""Pixels of height of what a finger touches."""

NAMELESS = """() => {
  const label = (e) => (e.labels && [...e.labels].map((one) => one.textContent).join("")) || e.textContent;
  const nameOf = (e) => e.getAttribute("aria-label") || label(e) || e.getAttribute("title") || "";
  return [...document.querySelectorAll("a, button, input:not([type=hidden]), select, progress, summary")]
    .filter((e) => !nameOf(e).trim()).map((e) => e.outerHTML.slice(0, 200));
}"""

LOW_CONTRAST = """(least) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const found = rgba(getComputedStyle(at).backgroundColor);
      if (found[3] > 250) return found;
    }
    return [255, 255, 255, 255];
  };
  const bad = [];
  for (const e of document.querySelectorAll("body *")) {
    const hasText = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!hasText || !e.checkVisibility({ opacityProperty: true }) || e.disabled) continue;
    const box = e.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || e.closest("dialog:not([open])")) continue;
    const [one, other] = [light(rgba(getComputedStyle(e).color)), light(ground(e))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < least) bad.push(`${ratio.toFixed(2)} ${e.outerHTML.slice(0, 120)}`);
  }
  return bad;
}"""

SMALL = """(least) => {
  const inputs = "input:not([type=hidden]):not([type=checkbox])";
  const touched = `button, ${inputs}, select, nav a, .button, summary, tbody th a`;
  return [...document.querySelectorAll(touched)]
    .filter((e) => e.checkVisibility() && !e.closest("dialog:not([open])"))
    .map((e) => [e.getBoundingClientRect(), e])
    .filter(([box]) => box.width > 0 && box.height < least - 0.5)
    .map(([box, e]) => `${box.height.toFixed(0)} px ${e.outerHTML.slice(0, 120)}`);
}"""

TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.scrollingElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("main *, header *")]
    .filter((e) => e.getBoundingClientRect().right > width + 1).map((e) => e.outerHTML.slice(0, 120));
}"""


def check_page(page: Page, *, is_phone: bool) -> None:
    """One heading of the first rank, a name for each control, enough contrast, no width beyond the screen."""
    assert page.locator("h1").count() == 1
    assert page.locator("main").count() == 1
    assert page.title()
    check(page, "have no name", NAMELESS)
    check(page, "have too little contrast", LOW_CONTRAST, CONTRAST_MIN)
    check(page, "are wider than the screen", TOO_WIDE)
    if is_phone:
        check(page, "are too small for a finger", SMALL, FINGER_MIN)


def check(page: Page, fault: str, script: str, *arguments: Any) -> None:
    """No element has the fault."""
    complaints: list[str] = page.evaluate(script, *arguments)
    assert not complaints, f"these {fault}:\n" + "\n".join(complaints[:10])
