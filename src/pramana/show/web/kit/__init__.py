"""What every page is made of: whose page it is, its frame, markup, controls, forms and pictures. It knows no page."""

from pramana.show.web.kit.page_context import PAGE_HINTS, PageContext, UseCaseRefused, make_url, quote_path_part

__all__ = ["PAGE_HINTS", "PageContext", "UseCaseRefused", "make_url", "quote_path_part"]
