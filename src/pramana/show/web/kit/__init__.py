"""What every page is made of: whose page it is, its frame, markup, controls, forms and pictures. It knows no page."""

from pramana.show.web.kit.desk import PAGE_HINTS, Desk, Refused, address, part

__all__ = ["PAGE_HINTS", "Desk", "Refused", "address", "part"]
