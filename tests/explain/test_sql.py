"""SQL over a trace: answers that can be derived by hand, and queries that mean harm."""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from command import npuscope as run_command
from made import US, dozen

from npuscope.base.errors import NpuscopeError
from npuscope.base.jobs import GIB, Limits
from npuscope.base.pool import close_pools
from npuscope.explain import explain
from npuscope.explain.sql import EXAMPLES, TABLES, run_query, schema_of
from npuscope.report.sql import chart_of, csv_of
from npuscope.trace import Trace, read


@pytest.fixture(scope="module")
def trace() -> Iterator[Trace]:
    yield dozen()
    close_pools()


def refused(trace: Trace, query: str, limits: Limits = Limits(20.0, 2 * GIB)) -> str:
    with pytest.raises(NpuscopeError) as error:
        run_query(trace, query, limits)
    return str(error.value)


def test_a_query_counts_what_the_analyses_count(trace: Trace) -> None:
    lanes = run_query(
        trace, "SELECT l.name, SUM(s.dur) AS busy FROM slices s JOIN lanes l ON s.lane = l.lane GROUP BY l.name"
    )
    assert dict(lanes.rows.iter_rows()) == {"AIC_0": 54 * US, "AIC_1": 58 * US, "AIV_0": 15 * US, "AIV_1": 2 * US}
    idle = run_query(trace, "SELECT reason, SUM(dur) AS idle_ns FROM gaps GROUP BY reason")
    assert dict(idle.rows.iter_rows()) == explain(trace).bubbles.by_reason
    path = run_query(trace, "SELECT part, SUM(dur) AS path_ns FROM path GROUP BY part")
    assert dict(path.rows.iter_rows()) == explain(trace).path.by_part()
    kernels = run_query(trace, "SELECT kernel, core_ns FROM kernels")
    assert kernels.rows.rows() == explain(trace).tables()["kernels"].frame.select("kernel", "core_ns").rows()


def test_every_example_runs_on_any_small_capture(small: dict[str, Path], trace: Trace) -> None:
    for one in EXAMPLES:
        few = "HAVING" in one.text  # the dozen has each kernel once
        assert bool(run_query(trace, one.text).rows.height) != few, one.question
    for capture in small.values():
        assert run_query(read(capture), EXAMPLES[0].text).rows.columns == ["kernel", "slices", "core_ns"]


def test_every_column_is_listed_with_its_unit_and_meaning(trace: Trace) -> None:
    listed = schema_of(trace).frame
    for name, table in TABLES.items():
        columns = listed.filter(pl.col("table") == name)
        assert set(table.frame(trace).columns) == set(columns["column"].to_list()), name
    assert listed.filter(pl.col("meaning") == "").is_empty()
    assert listed.filter(table="slices", column="dur")["type"].item() == "int, ns"


def test_a_number_is_a_time_only_where_the_query_calls_it_so(trace: Trace) -> None:
    (named,) = run_query(trace, "SELECT SUM(dur) AS all_ns FROM slices").main_table().shown()
    assert named.heading == "all µs"
    (counted,) = run_query(trace, "SELECT COUNT(core_ns) FROM kernels").main_table().shown()
    assert counted.heading == "core_ns"  # Polars calls the count by the column that it counts


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM \"read_csv\"('{file}')",
        "SELECT * FROM READ_CSV/**/('{file}')",
        "WITH stolen AS (SELECT * FROM read_csv('{file}')) SELECT * FROM stolen",
        "SELECT * FROM slices JOIN read_json('{file}') ON 1 = 1",
        "SELECT * FROM read_parquet('{folder}/*')",
        "SELECT * FROM read_ipc('{file}')",
        "SELECT * FROM read_csv('https://127.0.0.1:1/x.csv')",
        "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    ],
)
def test_a_query_reads_no_file_and_no_address(trace: Trace, tmp_path: Path, query: str) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("secret\n12345\n")
    said = refused(trace, query.format(file=file, folder=tmp_path))
    assert "no files" in said
    assert "12345" not in said


@pytest.mark.parametrize(
    "query",
    ["", "   -- nothing", "DROP TABLE slices", "DELETE FROM slices", "CREATE TABLE x AS SELECT 1", "COPY slices TO 'x'",
     "INSERT INTO slices VALUES (1)", "TRUNCATE slices", "SET x = 1", "/* SELECT */ DROP TABLE slices"],
)  # fmt: skip
def test_what_is_no_question_is_refused(trace: Trace, query: str) -> None:
    assert "begins with SELECT or WITH" in refused(trace, query)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM nowhere", "no table 'nowhere'. Tables: slices, lanes"),
        ("SELECT nothing FROM lanes", "no column 'nothing'. Columns: lane, name"),
        ("SELECT * FROM lanes; SELECT * FROM edges", "one (and only one) statement"),
        ("SELECT system('id') FROM lanes", "unsupported function 'system'"),
        ("SELECT kernel FROM slices WHERE kernel REGEXP '('", "unclosed group"),
        ("SELECT * FROM lanes GROUP BY", "Expected"),
    ],
)
def test_a_mistake_is_one_sentence(trace: Trace, query: str, said: str) -> None:
    found = refused(trace, query)
    assert said in found
    assert "\n" not in found
    assert "plan" not in found


NINE = "slices a, slices b, slices c, slices d, slices e, slices f, slices g, slices h, slices i"


def test_a_query_that_explodes_is_ended(trace: Trace) -> None:
    said = refused(trace, f"SELECT SUM(a.dur * b.dur * c.start * i.dur) FROM {NINE}", Limits(1.0, GIB // 2))
    assert said.startswith(("the query took more than 1 s", "the query took more than 0.5 GiB"))
    # and the next one is answered
    assert run_query(trace, "SELECT COUNT(*) AS n FROM slices").rows.item() == 12


def test_a_query_that_takes_too_much_memory_is_ended(trace: Trace) -> None:
    wide = f"SELECT a.kernel || b.kernel AS k, a.start + i.dur AS t FROM {NINE} ORDER BY k, t"
    assert "GiB" in refused(trace, wide, Limits(60.0, GIB // 8))


def test_rows_are_drawn_and_written(trace: Trace) -> None:
    found = run_query(trace, "SELECT '=cmd()' AS name, SUM(dur) AS all_ns FROM slices")
    assert csv_of(found).splitlines() == ["name,all_ns", "'=cmd(),129000"]
    bars = chart_of(found)
    assert bars is not None
    assert (bars["chart"], bars["form"]) == ("bars", "ns")
    points = chart_of(run_query(trace, "SELECT start, dur FROM slices"))
    assert points is not None
    assert points["chart"] == "scatter"
    assert len(points["points"]) == 12  # type: ignore[arg-type]
    assert chart_of(run_query(trace, "SELECT kernel FROM slices")) is None


def test_the_command(small: dict[str, Path], tmp_path: Path) -> None:
    capture = next(path for name, path in small.items() if "swimlane" in name)
    query = "SELECT kernel, SUM(dur) AS core_ns FROM slices GROUP BY kernel ORDER BY core_ns DESC"
    files = {name: tmp_path / f"rows.{name}" for name in ("csv", "md", "html")}
    written = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    ran = run_command("sql", capture, query, "--json", *written)
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)["rows"]
    assert len(files["csv"].read_text().splitlines()) == len(rows) + 1
    assert rows[0]["kernel"] in files["md"].read_text()
    assert rows[0]["kernel"] in files["html"].read_text()
    assert run_command("sql", "--examples").returncode == 0
    assert len(json.loads(run_command("sql", capture, "--tables", "--json").stdout)) > 40
    wrong = run_command("sql", capture, "SELECT * FROM nowhere")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no table" in wrong.stderr
    assert run_command("sql", capture).returncode == 2
