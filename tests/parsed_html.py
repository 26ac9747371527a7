"""HTML -> its tags, its text and its policy; strings that break out of a careless template."""

from html.parser import HTMLParser

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror='alert(1)'>",
    "\"quoted\" & 'quoted'",
    "</title></style></td><b>bold</b>",
    "&lt;i&gt;",
    "{{ 7*7 }}",
    "{% raw %}",
    "{# nothing #}",
)
WITHOUT_END = {"meta", "input"}


class ParsedHtml(HTMLParser):
    """A page, whose tags must be balanced and name no code."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text_of: dict[str, list[str]] = {}  # tag -> the text directly inside each such element
        self.policy = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    @property
    def text(self) -> str:
        return "".join(text for tag, texts in self.text_of.items() if tag != "style" for text in texts)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]
        if tag not in WITHOUT_END:
            self._open.append(tag)
            self.text_of.setdefault(tag, []).append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open:
            self.text_of[self._open[-1]][-1] += data
