import gzip
import sys

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from inducing.tables.errors import TableError
from inducing.tables.reading import count_rows, read_chunks, read_table

TABLE = pd.DataFrame({"size": [1.5, 2.0, -3.0], "colour": ["red", "blue", "red"], "count": [1, 2, 3]})


@pytest.fixture(params=["table.csv", "table.csv.gz", "table.parquet", "table.pq"])
def path(request, tmp_path):
    path = tmp_path / request.param
    if "csv" in path.name:
        TABLE.to_csv(path, index=False)
    else:
        TABLE.to_parquet(path)
    return path


def test_what_was_written_is_read(path):
    pd.testing.assert_frame_equal(read_table(path), TABLE)


def test_chunks_make_the_whole(path):
    chunks = list(read_chunks(path, 2))
    assert [len(chunk) for chunk in chunks] == [2, 1]
    pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), TABLE)


def test_rows_are_numbered_through(path):
    assert [list(chunk.index) for chunk in read_chunks(path, 2)] == [[0, 1], [2]]


def test_the_number_of_rows_is_known_beforehand(path):
    assert count_rows(path) == (None if path.name.endswith(".gz") else 3)


def test_columns_may_be_read_as_text(tmp_path):
    (tmp_path / "t.csv").write_text("code,size\n01,1\n02,2\n")
    (chunk,) = read_chunks(tmp_path / "t.csv", 5, text=["code", "absent"])
    assert chunk["code"].tolist() == ["01", "02"]
    assert chunk["size"].tolist() == [1, 2]


def test_a_table_without_rows_keeps_its_columns(tmp_path):
    TABLE[:0].to_csv(tmp_path / "t.csv", index=False)
    TABLE[:0].to_parquet(tmp_path / "t.pq")
    for name in ("t.csv", "t.pq"):
        assert list(read_table(tmp_path / name).columns) == list(TABLE.columns)
        assert all(len(chunk) == 0 for chunk in read_chunks(tmp_path / name, 5))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xlsx", b"", r"t\.xlsx is not a table"),
        ("t.csv", None, r"t\.csv does not exist"),
        ("t.csv", b"", r"t\.csv is not a CSV file .*No columns"),
        ("t.csv", b"a,b\n1,2\n1,2,3,4\n", r"t\.csv is not a CSV file .*line 3"),
        (
            "t.csv",
            b"a,b\n\xff\xfe,2\n",
            r"t\.csv is not a CSV file .*UTF-8 .*encoding",
        ),
        ("t.csv", b"a;b\n1,5;2\n", r"separated by ';'"),
        ("t.csv.gz", b"a,b\n1,2\n", r"t\.csv\.gz is not a CSV file"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], r"t\.csv\.gz is not a CSV file"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:10] + b"\x07" * 20, r"t\.csv\.gz is not a CSV file"),
        ("t.csv.gz", gzip.compress(b"a;b\n1,5;2\n", mtime=0), r"separated by ';'"),
        ("t.parquet", b"a,b\n1,2\n", r"t\.parquet is not a Parquet file: "),
        ("t.csv", b"x,y,y\n1,2,2\n", r"several columns of t\.csv have the name 'y'"),
        ("t.csv", b'x,"y",y\n1,2,2\n', r"several columns of t\.csv have the name 'y'"),
        ("t.csv", b"x,y\n1,2,3\n4,5,6\n", "Expected 2 fields in line 2"),
        ("t.csv", b"x,y\n1,2,3\n4,5\n", "Expected 2 fields in line 2"),
        ("t.csv", b"x,y\n0,1,2\n1,5,6\n", "Expected 2 fields in line 2"),
        ("t.csv", b"x,y\n1,2,\n4,5,\n", "Expected 2 fields in line 2"),
        ("t.csv", b"x,y\n1\n4,5,6\n", "Expected 2 fields in line 3"),
        ("t.csv", b"x,y\n1,2,3,4\n", "Expected 2 fields in line 2"),
        ("t.csv", b'x,"y,\nz"\n1,2\n3,"4,\n"\n5,6,7\n', "Expected 2 fields in line"),
        ("t.csv.gz", gzip.compress(b"x,y\n1,2\n4,5,6\n", mtime=0), "Expected 2 fields in line 3"),
    ],
)
@pytest.mark.parametrize("rows", [None, 1])
def test_what_is_no_table_is_refused(rows, name, content, message, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=message):
        list(read_chunks(tmp_path / name, rows))


def test_a_heading_may_look_like_a_number_of_a_copy(tmp_path):
    (tmp_path / "t.csv").write_text("y,y.1\n1,2\n")
    assert list(read_table(tmp_path / "t.csv").columns) == ["y", "y.1"]


def test_headings_of_parquet_must_differ(tmp_path):
    table = pyarrow.table([[1, 2], [3, 4]], names=["y", "y"])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(TableError, match="several columns"):
        read_table(tmp_path / "t.parquet")


def test_parquet_is_an_extra(tmp_path, monkeypatch):
    TABLE.to_parquet(tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"inducing\[parquet\]"):
        read_table(tmp_path / "t.parquet")


def test_numbers_are_exact(tmp_path):
    table = pd.DataFrame({"x": np.random.default_rng(0).normal(size=20)})
    table.to_csv(tmp_path / "t.csv", index=False)
    assert np.array_equal(read_table(tmp_path / "t.csv").to_numpy(), table.to_numpy())


def test_row_groups_of_any_size_are_read_in_order(tmp_path):
    table = pd.DataFrame({"x": np.arange(100)})
    for size in (7, 30, 100):
        table.to_parquet(tmp_path / "t.parquet", row_group_size=size)
        chunks = list(read_chunks(tmp_path / "t.parquet", 20))
        assert max(map(len, chunks)) == 20
        pd.testing.assert_frame_equal(pd.concat(chunks), table, check_index_type=False)


def test_a_column_has_one_type_in_a_long_file(tmp_path):
    """By default pandas infers the types of parts: the first rows would be numbers."""
    path = tmp_path / "long.csv"
    path.write_text("zip,x\n" + "".join(f"{k % 100_000:05d},1\n" for k in range(300_000)) + "N-1,2\n")
    assert set(map(type, read_table(path)["zip"])) == {str}
