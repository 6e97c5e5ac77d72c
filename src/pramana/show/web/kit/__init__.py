"""What every page is built from: its context, frame, markup, controls, forms and waveforms. Imports no page."""

from pramana.show.web.kit.page_context import PAGE_HINTS, PageContext, UseCaseRefused, make_url, quote_path_part

__all__ = ["PAGE_HINTS", "PageContext", "UseCaseRefused", "make_url", "quote_path_part"]
