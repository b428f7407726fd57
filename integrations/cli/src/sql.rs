//! The command `sql`: runs a query on tables with the engine that is installed.

use crate::fault::{Fault, reason_of, say};
use kernspan_parquet::{
    TableFolder,
    sql::{Engine, QUERIES},
};
use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::Command,
};

/// Run a query on tables, with an SQL engine that is installed
///
/// The engine is the first that is found of `duckdb`, DuckDB's package for Python, `datafusion-cli`, `clickhouse` and
/// `spark-sql`; kernspan has none of its own.
/// The query is the name of one that comes with kernspan, a file, or SQL. The tables are runs, ranks, steps, spans,
/// collectives, kernels, work and findings; columns are documented in docs/tables.md.
#[derive(clap::Args)]
#[command(after_help = "\
Queries:
  exposed_communication   time of collectives, and the part in which nothing else runs, by group
  late_ranks              ranks that the others wait for
  late_spans              spans that explain why they are late
  missing_collectives     collectives that some ranks of the group lack
  rank_waits              how long each rank waits for others, and they for it
  slowest_kernels         kernels that take the most time on each rank
  step_times              steps of each rank, recorded or not

Examples:
  kernspan sql late_ranks tables
  kernspan sql 'select rank, sum(losses) from ranks group by rank' tables
  kernspan sql --print late_spans tables | duckdb

Exit status: 0 success; 1 no engine was found, or it failed; 2 usage error")]
pub(crate) struct Args {
    /// The name of a query, a file with one, or SQL
    #[arg(value_name = "QUERY")]
    query: String,
    /// The folder of the tables
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The engine
    #[arg(long, value_enum)]
    engine: Option<EngineName>,
    /// Print the SQL instead of running it
    #[arg(long)]
    print: bool,
}

/// The engines, by the names of their programs.
#[derive(Clone, Copy, clap::ValueEnum)]
enum EngineName {
    Duckdb,
    #[value(name = "datafusion-cli")]
    DatafusionCli,
    Clickhouse,
    SparkSql,
}

impl From<EngineName> for Engine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Duckdb => Self::DuckDb,
            EngineName::DatafusionCli => Self::DataFusion,
            EngineName::Clickhouse => Self::ClickHouse,
            EngineName::SparkSql => Self::Spark,
        }
    }
}

/// Runs statements and a query with DuckDB's package for Python. Prints as many rows as the program does.
const DUCKDB_IN_PYTHON: &str = "\
import sys
try:
    import duckdb
except ImportError:
    sys.exit(127)
try:
    connection = duckdb.connect()
    for statement in sys.argv[1:-1]:
        connection.execute(statement)
    rows = connection.sql(sys.argv[-1])
    if rows is not None:
        rows.show(max_rows=40)
except duckdb.Error as error:
    sys.exit(str(error))";

/// The exit status for an engine that is not installed, as shells have it for programs.
const NOT_FOUND: i32 = 127;

/// Runs an engine. Returns whether it is installed.
fn ran(engine: &str, command: &mut Command) -> Result<bool, Fault> {
    match command.status() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Fault::Failed(format!("cannot run {engine}: {}", reason_of(&error)))),
        Ok(status) if status.code() == Some(NOT_FOUND) => Ok(false),
        Ok(status) if status.success() => {
            say(&format!("ran with {engine}"));
            Ok(true)
        }
        Ok(status) => Err(Fault::Failed(format!("{engine} failed ({status})"))),
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let folder = TableFolder::open(&self.folder).map_err(|error| Fault::Failed(error.to_string()))?;
        let query = self.query()?;
        let engines = self.engine.map_or_else(|| Engine::ALL.to_vec(), |engine| vec![engine.into()]);
        for engine in engines {
            let mut statements = engine.statements(folder.path());
            statements.push(query.clone());
            let sql = statements.join(";\n") + ";\n";
            if self.print {
                return Ok(io::stdout().write_all(sql.as_bytes())?);
            }
            let (program, arguments) = engine.program();
            let mut command = Command::new(program);
            if ran(program, command.args(arguments).arg(&sql))? {
                return Ok(());
            }
            let mut python = Command::new("python3");
            if engine == Engine::DuckDb
                && ran("DuckDB's package for Python", python.args(["-c", DUCKDB_IN_PYTHON]).args(&statements))?
            {
                return Ok(());
            }
        }
        let wanted = match self.engine.map(Engine::from) {
            None => "duckdb, DuckDB's package for Python, datafusion-cli, clickhouse or spark-sql",
            Some(Engine::DuckDb) => "duckdb or its package for Python",
            Some(engine) => engine.program().0,
        };
        Err(Fault::Failed(format!(
            "no SQL engine: {wanted} was not found; install one, such as DuckDB (`pip install duckdb`, or the program \
             from https://duckdb.org/install), or use --print and any other"
        )))
    }

    /// Returns the SQL of a query: by its name, or from a file, or as it was given.
    fn query(&self) -> Result<String, Fault> {
        let name = self.query.trim();
        let sql = match QUERIES.iter().find(|(known, _)| *known == name) {
            Some((_, sql)) => (*sql).to_owned(),
            None if name.contains(char::is_whitespace) && !name.ends_with(".sql") => name.to_owned(),
            None => fs::read_to_string(name).map_err(|error| {
                let names: Vec<_> = QUERIES.iter().map(|(name, _)| *name).collect();
                let (reason, names) = (reason_of(&error), names.join(", "));
                Fault::Usage(format!("cannot read the query {name}: {reason}; known by name are {names}"))
            })?,
        };
        Ok(sql.trim().trim_end_matches(';').to_owned())
    }
}
