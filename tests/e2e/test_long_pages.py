"""The pages whose snippets train for seconds, run whole; `make test` runs the others."""

import pytest
from test_snippets import LONG, ROOT, folder, run_page

__all__ = ["folder"]


@pytest.mark.parametrize("page", sorted(LONG), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_snippets_of_a_long_page_run(page, folder):
    assert run_page(page.read_text(encoding="utf-8"), folder, str(page.relative_to(ROOT)))
