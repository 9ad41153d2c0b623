"""The words of boards become a few elements; HTML in them, and in values that are filled in, stays text."""

from __future__ import annotations

from typing import Any

from grafana_preview.markdown import nodes


def test_headings_emphasis_code_lists_and_links_are_elements() -> None:
    assert nodes("### Is it?\nYes, **very** `x`.\n\n* [a](https://example.com/a)") == [
        {"tag": "h3", "in": ["Is it?"]},
        {"tag": "p", "in": ["Yes, ", {"tag": "strong", "in": ["very"]}, " ", {"tag": "code", "in": ["x"]}, "."]},
        {
            "tag": "ul",
            "in": [{"tag": "li", "in": [{"tag": "p", "in": [{"tag": "a", "in": ["a"], "url": "https://example.com/a"}]}]}],
        },
    ]


def tags(found: list[Any]) -> set[str]:
    inside = [one for one in found if isinstance(one, dict)]
    return {one["tag"] for one in inside} | {tag for one in inside for tag in tags(one["in"])}


def test_html_and_images_are_no_elements_and_a_script_is_no_link() -> None:
    found = nodes("<script>x</script> <b>y</b> ![z](https://example.com/z.png) [j](javascript:alert(1)) [d](data:text/html,x)")

    assert tags(found) <= {"p"}
    assert "<script>x</script> <b>y</b>" in str(found)


def test_a_value_that_looks_like_markdown_is_text_and_addresses_are_filled_in() -> None:
    def words(text: str) -> str:
        return text.replace("$job", "**a** <i>")

    found = nodes("Of **$job**: [there](/d/x?from=${__from})", words, lambda url: url.replace("${__from}", "1"))

    there = {"tag": "a", "in": ["there"], "url": "/d/x?from=1"}
    assert found == [{"tag": "p", "in": ["Of ", {"tag": "strong", "in": ["**a** <i>"]}, ": ", there]}]
