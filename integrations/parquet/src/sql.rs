//! The queries that come with the schema, and the tables as engines see them.

use crate::schema::TABLES;
use std::path::Path;

/// The views that the queries use, one statement after the other.
pub const VIEWS: &str = include_str!("../sql/views.sql");

/// The queries, by name: see `integrations/parquet/sql`. They use integers only, so that all engines return the same.
pub const QUERIES: [(&str, &str); 7] = [
    ("exposed_communication", include_str!("../sql/exposed_communication.sql")),
    ("late_ranks", include_str!("../sql/late_ranks.sql")),
    ("late_spans", include_str!("../sql/late_spans.sql")),
    ("missing_collectives", include_str!("../sql/missing_collectives.sql")),
    ("rank_waits", include_str!("../sql/rank_waits.sql")),
    ("slowest_kernels", include_str!("../sql/slowest_kernels.sql")),
    ("step_times", include_str!("../sql/step_times.sql")),
];

/// An engine. The queries are the same for all. This is all that differs:
///
/// | | tables | views |
/// |---|---|---|
/// | DuckDB | `read_parquet` | |
/// | DataFusion | `create external table` | |
/// | ClickHouse | `file`, with the run from the path | |
/// | Spark | `using parquet` | `create temporary view` instead of `create view` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// DuckDB, as `duckdb`.
    DuckDb,
    /// Apache DataFusion, as `datafusion-cli`.
    DataFusion,
    /// ClickHouse, as `clickhouse local`; chDB in Python.
    ClickHouse,
    /// Apache Spark, as `spark-sql`.
    Spark,
}

impl Engine {
    /// All engines, in the order in which they are looked for.
    pub const ALL: [Self; 4] = [Self::DuckDb, Self::DataFusion, Self::ClickHouse, Self::Spark];

    /// Returns the program, and its arguments before the one that has the SQL.
    pub fn program(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::DuckDb => ("duckdb", &["-c"]),
            Self::DataFusion => ("datafusion-cli", &["--quiet", "-c"]),
            Self::ClickHouse => ("clickhouse", &["local", "--output-format", "PrettyCompact", "--query"]),
            Self::Spark => ("spark-sql", &["-e"]),
        }
    }

    /// Returns statements that give the tables of a folder their names, then those of [`VIEWS`]. Tables without files
    /// are empty.
    pub fn statements(self, folder: &Path) -> Vec<String> {
        let tables = TABLES.iter().map(|table| {
            let files = folder.join(table.name);
            if !files.is_dir() {
                return self.empty(table);
            }
            let (name, files) = (table.name, files.display().to_string().replace('\'', "''"));
            match self {
                Self::DuckDb => format!(
                    "create view {name} as select * from read_parquet('{files}/*/*.parquet', hive_partitioning = true, \
                     hive_types = {{'run': varchar}})"
                ),
                Self::DataFusion => {
                    format!("create external table {name} stored as parquet partitioned by (run) location '{files}/'")
                }
                Self::ClickHouse => format!(
                    "create view {name} as select *, extract(_path, 'run=([^/]*)') as run \
                     from file('{files}/*/*.parquet', Parquet) settings use_hive_partitioning = 0"
                ),
                Self::Spark => format!("create temporary view {name} using parquet options (path '{files}')"),
            }
        });
        let views = without_comments(VIEWS);
        let views = views.split(';').map(str::trim).filter(|view| !view.is_empty());
        tables.chain(views.map(ToOwned::to_owned)).map(|statement| self.in_dialect(&statement)).collect()
    }

    /// Returns a statement as the engine understands it.
    fn in_dialect(self, statement: &str) -> String {
        match (self, statement.strip_prefix("create view ")) {
            (Self::Spark, Some(view)) => format!("create temporary view {view}"),
            _ => statement.to_owned(),
        }
    }

    /// Returns the statement for a table without rows.
    fn empty(self, table: &crate::schema::Table) -> String {
        use crate::schema::Kind;
        let columns = table.columns.iter().map(|column| {
            let value = match column.kind {
                Kind::Int => "cast(0 as bigint)",
                Kind::Bool => "(1 = 0)",
                Kind::Text => "''",
            };
            format!("{value} as {}", column.name)
        });
        let columns: Vec<_> = columns.collect();
        format!("create view {} as select {}, '' as run where 1 = 0", table.name, columns.join(", "))
    }
}

/// Returns SQL without comments, in which semicolons may be.
fn without_comments(sql: &str) -> String {
    let lines = sql.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}
