"""From run folders to tables in the paper's layout. Imports no torch.

run folders -> Entry -> Reading -> Point -> Table -> text, md, latex, csv, json
               entries  readings   layouts  table    formats
"""

from bayesdg.tables.cells import Cell, Row, by_method

__all__ = ["Cell", "Row", "by_method"]
