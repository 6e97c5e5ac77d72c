"""What every page is made of: whose page it is, its frame, markup, controls, forms and pictures. It knows no page."""
