"""The browser of the distribution, and pages that are open in it."""

import shutil

import pytest

from tests.report.browser import Visit


@pytest.fixture(scope="module")
def chromium():
    """The distribution's browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Opens pages, and in the end demands that none of them had trouble."""
    visits = []

    def opened(path, **how):
        visits.append(Visit(chromium, path, **how))
        return visits[-1]

    yield opened
    for one in visits:
        one.page.close()
        assert one.trouble == []
