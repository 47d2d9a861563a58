"""Long description of the distribution: README.md without pictures and links into the repository, which an index does
not have. All else is in pyproject.toml."""

import re
from pathlib import Path

from setuptools import setup

INTO_THE_REPOSITORY = r"\((?!https?:)[^)]*\)"

text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
text = re.sub(rf"!\[[^\]]*\]{INTO_THE_REPOSITORY}\n+", "", text)
text = re.sub(rf"\[([^\]]*)\]{INTO_THE_REPOSITORY}", r"\1", text)
setup(long_description=text, long_description_content_type="text/markdown")
