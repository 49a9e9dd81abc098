"""A browser without a screen: Starlette's client, and what its pages hold."""

from html.parser import HTMLParser
from urllib.parse import unquote

from starlette.testclient import TestClient

from odradek.client.settings import ClientSettings
from odradek.console.app import make_app
from odradek.console.settings import ConsoleSettings

HOME = "http://127.0.0.1:9080"
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(HTMLParser):
    """Elements and texts of a page, as a browser would find them."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self._open = [], [], []
        self.rows = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        self.texts.append(data)
        if {"td", "th"}.intersection(self._open) and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def all(self, tag, **wanted):
        """The attributes of elements."""
        return [
            found
            for name, found in self.elements
            if name == tag and all(found.get(key.rstrip("_")) == value for key, value in wanted.items())
        ]

    def links(self):
        return [one["href"] for one in self.all("a") if "href" in one]

    @property
    def body_rows(self):
        """Texts of the cells of the rows of tables, without the heads and the template."""
        rows = [[" ".join(cell.split()) for cell in row] for row in self.rows]
        return [row for row in rows if row and any(row) and row[0] not in ("Topic", "Group", "Part", "Name")]

    @property
    def sentences(self):
        return self.text


class Browser:
    """Keeps cookies, sends its Origin with forms, follows no redirect."""

    def __init__(self, app, base_url=HOME):
        self.client = TestClient(app, base_url=base_url, follow_redirects=False)
        self.base_url = base_url

    def __enter__(self):
        self.client.__enter__()
        return self

    def __exit__(self, *error):
        return self.client.__exit__(*error)

    def get(self, url, **options):
        return self.client.get(url, **options)

    def page(self, url, status=200):
        response = self.get(url)
        assert response.status_code == status, (url, response.status_code, response.headers.get("location"))
        return Page(response.text)

    def token(self, url="/topics"):
        return Page(self.get(url).text).all("input", name="token")[0]["value"]

    def post(self, url, fields=None, *, token=None, headers=None):
        fields = dict(fields or {})
        fields.setdefault("token", self.token() if token is None else token)
        sent = {"origin": self.base_url} if headers is None else headers
        return self.client.post(url, data=fields, headers=sent)


def settings_for(address, **options):
    client = ClientSettings(address, retry_ms=1, patience_ms=options.pop("patience_ms", 20_000))
    return ConsoleSettings(client=client, **options)


def browser_of(address, **options):
    return Browser(make_app(settings_for(address, **options)))


def place(url):
    """A URL for a person."""
    return unquote(url)
