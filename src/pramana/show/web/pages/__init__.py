"""The pages of the workbench: one module for each address, plus markup that only one page uses."""
