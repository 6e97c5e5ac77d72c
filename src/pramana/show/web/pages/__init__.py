"""The pages of the workbench: a module for each address, and what only one page draws."""
