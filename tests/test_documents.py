"""The documents: their links lead somewhere, they stay short, and what they name of the code is there."""

import pathlib
import re

from tests.kit.collecting import collected
from tests.kit.walks import architecture, common_path, steps

ROOT = pathlib.Path(__file__).parent.parent
LINES_MAX = {"README.md": 120, "docs/architecture.md": 205}
IMAGE_BYTES_MAX = 200_000
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
NAMED_FILE = re.compile(r"`([\w.]+(?:/[\w.]+)+\.(?:py|pyi|pyx|pxi|md|toml))`")
NAMED_TEST = re.compile(r"`((?:compat_)?tests/[\w/]+\.py)::(test_\w+)`")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCES_OF_HOW_TO = {"console", "sh", "yaml", "json", "text"}
"""`console` is run by compat_tests/commands/test_console_blocks.py."""
NOT_RUN = {"docker", "systemctl", "journalctl", "pip"}
"""Programs that no test can run as a page shows them: these alone are in blocks of `sh`."""
SHOWN = re.compile(r"^( *)```python\n +# ([\w/]+\.py)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def name(page):
    return str(page.relative_to(ROOT))


def how_to():
    return sorted((ROOT / "docs" / "howto").glob("*.md"))


def test_each_link_to_a_file_leads_to_one():
    with collected() as failures:
        for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *how_to()]:
            with failures.of(name(page)):
                targets = [match[1] for match in LINK.finditer(page.read_text()) if match[1]]
                missing = [target for target in targets if not (page.parent / target).exists()]
                assert not missing, f"it links to {missing}"


def test_pictures_are_small_and_shown():
    """Each is a PNG that a page shows; a clone should not take long for them."""
    images = sorted((ROOT / "docs" / "images").iterdir())
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {
        (page.parent / match[1]).resolve() for page in pages for match in LINK.finditer(page.read_text())
    }
    assert len(images) >= 3
    for image in images:
        assert image.read_bytes().startswith(b"\x89PNG\r\n")
        assert image.stat().st_size < IMAGE_BYTES_MAX, f"{image.name} is too large"
        assert image.resolve() in shown, f"no page shows {image.name}"


def test_the_first_page_leads_to_each_how_to():
    text = (ROOT / "README.md").read_text()
    assert len(how_to()) >= 5
    assert not [name(page) for page in how_to() if f"]({name(page)})" not in text]


def test_what_is_not_run_cannot_be():
    with collected() as failures:
        for page in [ROOT / "README.md", *how_to()]:
            with failures.of(name(page)):
                check_what_is_not_run(page)


def check_what_is_not_run(page):
    text = page.read_text()
    fences = FENCE.findall(text)
    if page.parent.name == "howto":
        assert {kind for kind, _ in fences} <= FENCES_OF_HOW_TO
        assert "console" in {kind for kind, _ in fences}
    commands = [line for kind, block in fences if kind == "sh" for line in joined(block)]
    others = [line for line in commands if line.split()[0] not in NOT_RUN]
    assert not others, "what a test can run belongs into a block of `console`, with what it prints"
    assert not [block for kind, block in fences if kind != "console" and "\n$ " in f"\n{block}"]
    indented = re.findall(r"^    \$? ?odradek .*", FENCE.sub("", text), re.MULTILINE)
    assert not indented, "an indented block is not run: write a block of `console`"


def joined(block):
    """The lines, with those that a backslash continues in one."""
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def test_the_first_pages_stay_short():
    lines = {page: len((ROOT / page).read_text().splitlines()) for page in LINES_MAX}
    long = {page: count for page, count in lines.items() if count > LINES_MAX[page]}
    assert not long, "details belong into another page of docs/ or into docstrings"


def test_each_file_that_a_page_for_developers_names_is_there():
    missing = [
        f"{page} names {path}"
        for page in ("docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md")
        for path in NAMED_FILE.findall((ROOT / page).read_text())
        if not (ROOT / path).exists()
    ]
    assert not missing, "write where that is now"


def test_code_that_is_shown_stands_in_its_file():
    """A block of Python whose first line names a file; the block may be indented as a part of a list."""
    blocks = SHOWN.findall((ROOT / "CONTRIBUTING.md").read_text())
    assert len(blocks) >= 3
    missing = [
        path
        for indent, path, block in blocks
        if re.sub(f"^{indent}", "", block, flags=re.MULTILINE) not in (ROOT / path).read_text()
    ]
    assert not missing, f"CONTRIBUTING.md shows {missing} as it was"


def test_each_test_that_the_table_of_attacks_names_is_there():
    named = NAMED_TEST.findall((ROOT / "docs" / "security_tests.md").read_text())
    assert len(named) > 25
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not re.search(rf"^(?:async )?def {test}\(", (ROOT / path).read_text(), re.MULTILINE)
    ]
    assert not missing, f"docs/security_tests.md names {missing}: write which test shows it now"


def test_each_fault_of_the_table_has_a_test():
    lines = (ROOT / "docs" / "security_tests.md").read_text().splitlines()
    rows = [
        line for line in lines if line.startswith("| ") and not line.startswith(("| CVE |", "| attack |"))
    ]
    assert len(rows) > 25
    assert [row for row in rows if not NAMED_TEST.search(row)] == []


def test_each_function_of_a_walk_is_in_its_file():
    named = steps(architecture())
    assert len(named) > 40
    missing = [
        f"{function} in {path}"
        for path, function in named
        if not re.search(rf"\b(?:def|class|cdef|cdef \w+) {function}\b", (ROOT / path).read_text())
    ]
    assert not missing, f"docs/architecture.md names {missing}: write which function does that now"


def test_a_newcomer_walks_through_eight_files_and_fifteen_functions_at_most():
    """The common path of the three requests that a broker lives by: the first table of each walk. That it is
    the path of a real request shows `tests/server/test_walks.py`."""
    for walk in ("One produce", "One fetch", "One join"):
        named = common_path(walk)
        assert len({path for path, _ in named}) <= 8, walk
        assert 8 <= len(named) <= 15, (walk, named)
