"""A process of its own: the first sheet of a workbook -> a Parquet file.

The library that reads workbooks may end the process where one is damaged, or asks for more memory than there is.
"""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path


def main(workbook: str, result: str, most_bytes: str) -> None:
    """Read the first sheet, with empty rows; its first row is the header. Print the reason if that is not possible.

    Args:
        workbook: the file.
        result: the file to write.
        most_bytes: of memory to take.
    """
    import polars as pl
    from fastexcel import FastExcelError

    logging.disable()  # it warns of each column without values
    _limit_memory(int(most_bytes))
    content = io.BytesIO(Path(workbook).read_bytes())
    try:
        frame = pl.read_excel(
            content, sheet_id=1, infer_schema_length=None, drop_empty_rows=False, raise_if_empty=False
        )
    except (FastExcelError, pl.exceptions.PolarsError) as problem:
        print(str(problem).splitlines()[0])
        sys.exit(1)
    frame.write_parquet(result)


def _limit_memory(most_bytes: int) -> None:
    try:
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + most_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ImportError, OSError, ValueError):  # systems without such limits, or a lower one
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
