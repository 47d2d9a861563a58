"""A browser that tests look with."""


class Visit:
    """A page that is open, of a file or of a server's address; `trouble` is what the console, the scripts and the
    network had to say."""

    def __init__(self, browser, address, *, width=1400, scheme="light"):
        self.address = address if isinstance(address, str) else address.as_uri()
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.trouble = []
        self.page.on("console", lambda said: self.trouble.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", self._requested)
        self.page.goto(self.address)

    def _requested(self, request):
        own = "file:" if self.address.startswith("file:") else "/".join(self.address.split("/")[:3]) + "/"
        if not request.url.startswith((own, "data:", "blob:")):
            self.trouble.append(request.url)

    def draw(self, entry):
        """Bring every plot of an entry into view, one after the other; returns how many there are."""
        plots = self.page.locator(f'.plot[data-entry="{entry}"]')
        for number in range(plots.count()):
            plots.nth(number).scroll_into_view_if_needed()
            self.page.wait_for_function(
                "plot => plot.dataset.drawn", arg=plots.nth(number).element_handle(), timeout=200_000
            )
        return plots.count()

    def plot(self, name, entry="entry-0"):
        return self.page.locator(f'.plot[data-entry="{entry}"][data-name="{name}"]')

    def overflow(self):
        """Pixels by which the page is wider than its window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
