"""An SVG picture as a part of a page: in the page's colours, with no style of its own.

A strict content policy forbids style attributes, so they become plain attributes. What is black
takes the colour of the page's text: it shows in dark mode, too.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from bayesdg.report.style import INK, as_page_svg

# Of a `font:` shorthand, as matplotlib writes it: [style] [weight] size family.
FONT = re.compile(r"(?:italic )?(?:bold |\d+ )?([\d.]+)px")
IDENTIFIER = re.compile(r'(\bid="|url\(#|href="#)')
DIGITS = re.compile(r"(\d+\.\d{2})\d+")
# Neither < nor > is written within one but for its ends.
TAG = re.compile(r"<[^>]*>")


def inline(figure: Figure, title: str, prefix: str) -> Markup:
    """The figure as an <svg> element that says what it shows.

    Args:
        figure: Drawn in the house's style.
        title: What a screen reader says.
        prefix: Of all identifiers: two pictures on one page share none.
    """
    text = as_page_svg(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = TAG.sub(lambda tag: _for_page(tag[0], prefix), text)
    text = re.sub(r">\s+<", "><", text)
    head = re.search(r'viewBox="[^"]*"', text)
    body = text[text.index(">") + 1 :]
    box = head[0] if head else ""
    # The content is matplotlib's, which escapes every text it writes.
    return Markup(f'<svg class="figure" role="img" aria-label="{escape(title)}" {box}>{body}')


def _for_page(tag: str, prefix: str) -> str:
    """A tag with shorter numbers; what stands between tags, such as 0.125 at an axis, is left."""
    tag = re.sub(r' style="([^"]*)"', lambda found: _attributes(found[1]), tag)
    return DIGITS.sub(r"\1", IDENTIFIER.sub(rf"\g<1>{prefix}-", tag))


def _attributes(style: str) -> str:
    """`fill: #000000; opacity: 0.1` -> ` fill="currentColor" opacity="0.1"`."""
    written = []
    for declaration in style.split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font":
            size = FONT.match(value)
            written.append(f' font-size="{size[1]}"' if size else "")
        elif name and name not in ("font-family",):
            value = "currentColor" if value.lower() == INK else value
            written.append(f' {name}="{value}"')
    return "".join(written)
