"""Runs statements and queries with an engine, and prints the rows of each query as a line of JSON.

    engines.py ENGINE STATEMENTS.json

The file has {"statements": [...], "queries": [...], "folder": "..."}.
"""

import json
import sys


def duckdb(work):
    import duckdb

    connection = duckdb.connect()
    for statement in work["statements"]:
        connection.execute(statement)
    for query in work["queries"]:
        yield connection.execute(query).fetchall()


def datafusion(work):
    import datafusion

    context = datafusion.SessionContext()
    for statement in work["statements"]:
        context.sql(statement).collect()
    for query in work["queries"]:
        batches = context.sql(query).collect()
        yield [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def chdb(work):
    from chdb import session

    session = session.Session()
    for statement in work["statements"]:
        session.query(statement)
    for query in work["queries"]:
        lines = str(session.query(query, "JSONCompactEachRow")).splitlines()
        yield [json.loads(line) for line in lines]


def spark(work):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    # Small tables: one part of each is enough.
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    for statement in work["statements"]:
        session.sql(statement)
    for query in work["queries"]:
        yield [tuple(row) for row in session.sql(query).collect()]


def polars(work):
    """A data frame in one line, without SQL: the rows and the sum of durations of two tables."""
    import polars

    for table in ["steps", "collectives"]:
        frame = polars.read_parquet(f"{work['folder']}/{table}/*/*.parquet", hive_partitioning=True)
        yield [(frame.height, frame["duration_ns"].sum(), frame["run"].n_unique())]


def plain(value):
    """Integers that an engine returns as text, decimals or booleans, as integers."""
    if isinstance(value, (bool, str)) and not str(value).lstrip("-").isdigit():
        return value
    return int(value)


with open(sys.argv[2]) as file:
    work = json.load(file)
for rows in globals()[sys.argv[1]](work):
    print(json.dumps([[plain(value) for value in row] for row in rows]), flush=True)
