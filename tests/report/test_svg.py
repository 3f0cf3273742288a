"""A figure as a part of the page, read with the standard library's parser."""

from xml.etree import ElementTree

from matplotlib.figure import Figure

from bayesdg.report.svg import inline


def texts(figure: Figure) -> list[str]:
    root = ElementTree.fromstring(inline(figure, "title", "p").replace("xlink:", ""))
    return [element.text or "" for element in root.iter("text")]


def test_numbers_at_an_axis_keep_all_their_digits() -> None:
    figure = Figure()
    labels = ["0.001", "0.0025", "0.12345"]
    figure.add_subplot().set_xticks([1, 2, 3], labels)
    assert [text for text in texts(figure) if text in labels] == labels


def test_a_label_that_looks_like_markup_is_text() -> None:
    name = '<b style="color:red" id="x" href="#y">1.234</b>'
    figure = Figure()
    figure.add_subplot().set_title(name, parse_math=False)
    assert name in texts(figure)


def test_nothing_in_it_is_a_style_and_every_identifier_has_the_prefix() -> None:
    figure = Figure()
    figure.add_subplot().plot([1, 2], [3, 4])
    root = ElementTree.fromstring(inline(figure, "title", "p").replace("xlink:", ""))
    for element in root.iter():
        assert "style" not in element.attrib
        assert element.get("id", "p-").startswith("p-")
        assert element.get("href", "#p-").startswith("#p-")
    assert root.get("aria-label") == "title"
