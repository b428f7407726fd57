//! One file of a table: written whole under a name of its own, and read row group by row group.

use crate::{
    rows::{Rows, Values},
    schema::{Kind, TABLE_KEY, Table, VERSION, VERSION_KEY, WINDOWS_KEY},
};
use parquet::{
    basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel},
    column::reader::get_typed_column_reader,
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type},
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::{KeyValue, SortingColumn},
        properties::{WriterProperties, WriterVersion},
        reader::{FileReader, RowGroupReader, SerializedFileReader},
        statistics::Statistics,
        writer::SerializedFileWriter,
    },
    schema::types::{ColumnPath, Type},
};
use std::{
    collections::BTreeSet,
    error::Error,
    fmt,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The rows of a row group: enough for columns to compress well, and few enough to be read at once by many threads.
const ROWS_PER_GROUP: usize = 1 << 17;

/// A file or folder of tables that cannot be read or written. `Display` writes a sentence.
#[derive(Debug)]
pub struct TableError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Read(io::Error),
    Write(Box<dyn Error + Send + Sync>),
    Damaged(ParquetError),
    Version(String),
    Foreign(&'static str),
    NoTables,
    NoRun(String, Vec<String>),
}

impl TableError {
    pub(crate) fn reading(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self { path, problem: Problem::Read(error) }
    }

    pub(crate) fn writing<E: Into<Box<dyn Error + Send + Sync>>>(path: &Path) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |error| Self { path, problem: Problem::Write(error.into()) }
    }

    pub(crate) fn damaged(path: &Path) -> impl Fn(ParquetError) -> Self {
        let path = path.to_owned();
        move |error| Self { path: path.clone(), problem: Problem::Damaged(error) }
    }

    pub(crate) fn no_tables(path: &Path) -> Self {
        Self { path: path.to_owned(), problem: Problem::NoTables }
    }

    pub(crate) fn no_run(path: &Path, run: &str, runs: Vec<String>) -> Self {
        Self { path: path.to_owned(), problem: Problem::NoRun(run.to_owned(), runs) }
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            Problem::Read(error) => write!(f, "cannot read {path}: {error}"),
            Problem::Write(error) => write!(f, "cannot write {path}: {error}"),
            Problem::Damaged(error) => {
                let error = error.to_string();
                let error = error.strip_prefix("Parquet error: ").unwrap_or(&error);
                write!(f, "cannot read {path}: not a complete Parquet file: {error}")
            }
            Problem::Version(found) => write!(
                f,
                "cannot read {path}: expected version {VERSION} of the schema, found {found}; write the tables \
                 again, or use the kernspan that wrote them"
            ),
            Problem::Foreign(table) => write!(f, "cannot read {path}: not a table of kernspan called {table}"),
            Problem::NoTables => {
                write!(f, "cannot read {path}: no tables; `kernspan tables FILES… --out DIR` writes them")
            }
            Problem::NoRun(run, runs) => {
                write!(f, "cannot read {path}: no run is called {run}; there are: {}", runs.join(", "))
            }
        }
    }
}

impl Error for TableError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.problem {
            Problem::Read(error) => Some(error),
            Problem::Write(error) => Some(&**error),
            Problem::Damaged(error) => Some(error),
            _ => None,
        }
    }
}

/// Writes the rows of a table into a new file of a folder, whose name begins with `name`, and returns its path.
///
/// The file appears whole or not at all, and never replaces another.
pub(crate) fn write(folder: &Path, name: &str, rows: &Rows, windows: &BTreeSet<String>) -> Result<PathBuf, TableError> {
    fs::create_dir_all(folder).map_err(TableError::writing(folder))?;
    // Engines do not look at names that begin with a dot.
    let unfinished = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let written = encode(&unfinished, rows, windows).and_then(|()| {
        for attempt in 0_u32.. {
            let number = if attempt == 0 { String::new() } else { format!("-{attempt}") };
            let path = folder.join(format!("{name}{number}.parquet"));
            match place(&unfinished, &path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(TableError::writing(&path)(error)),
                Ok(()) => return Ok(path),
            }
        }
        Err(TableError::writing(folder)(io::Error::from(io::ErrorKind::AlreadyExists)))
    });
    let _ = fs::remove_file(&unfinished);
    written
}

/// Gives a file its name, unless there is a file of that name.
fn place(unfinished: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(unfinished, path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
            // A file system without links: whoever creates the empty file owns the name.
            File::options().write(true).create_new(true).open(path)?;
            fs::rename(unfinished, path)
        }
        linked => linked,
    }
}

fn encode(path: &Path, rows: &Rows, windows: &BTreeSet<String>) -> Result<(), TableError> {
    let file = File::create(path).map_err(TableError::writing(path))?;
    let mut out = BufWriter::new(file);
    encode_to(&mut out, rows, windows).map_err(TableError::writing(path))?;
    let file = out.into_inner().map_err(|error| TableError::writing(path)(error.into_error()))?;
    // A name that leads to nothing after a power failure would be worse than none.
    file.sync_all().map_err(TableError::writing(path))
}

fn encode_to(out: &mut (impl Write + Send), rows: &Rows, windows: &BTreeSet<String>) -> ParquetResult<()> {
    let table = rows.table();
    let order = rows.order();
    let mut writer = SerializedFileWriter::new(out, parquet_schema(table)?, properties(table, windows).into())?;
    let texts: Vec<_> = rows.texts().iter().map(|text| ByteArray::from(&**text)).collect();
    for order in order.chunks(ROWS_PER_GROUP) {
        let mut group = writer.next_row_group()?;
        let mut columns = rows.columns().iter();
        while let (Some(mut out), Some(column)) = (group.next_column()?, columns.next()) {
            match column {
                Values::Int(values) => put::<Int64Type>(&mut out, order.iter().map(|&row| values[row]))?,
                Values::Bool(values) => put::<BoolType>(&mut out, order.iter().map(|&row| values[row]))?,
                Values::Text(values) => {
                    let text = |row: &usize| texts.get(values[*row] as usize).cloned().unwrap_or_default();
                    put::<ByteArrayType>(&mut out, order.iter().map(text))?;
                }
            }
            out.close()?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn put<T: DataType>(
    out: &mut parquet::file::writer::SerializedColumnWriter<'_>,
    values: impl Iterator<Item = T::T>,
) -> ParquetResult<()> {
    out.typed::<T>().write_batch(&values.collect::<Vec<_>>(), None, None)?;
    Ok(())
}

fn parquet_schema(table: &Table) -> ParquetResult<Arc<Type>> {
    let columns = table.columns.iter().map(|column| {
        let (physical, logical) = match column.kind {
            Kind::Int => (Physical::INT64, None),
            Kind::Bool => (Physical::BOOLEAN, None),
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let column = Type::primitive_type_builder(column.name, physical).with_repetition(Repetition::REQUIRED);
        column.with_logical_type(logical).build().map(Arc::new)
    });
    Type::group_type_builder(table.name).with_fields(columns.collect::<ParquetResult<_>>()?).build().map(Arc::new)
}

fn properties(table: &Table, windows: &BTreeSet<String>) -> WriterProperties {
    let entry = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let metadata = vec![
        entry(VERSION_KEY, VERSION.to_string()),
        entry(TABLE_KEY, table.name.to_owned()),
        entry(WINDOWS_KEY, windows.iter().map(String::as_str).collect::<Vec<_>>().join(" ")),
    ];
    let sorted = (0..table.sorted_by).map(|column| SortingColumn {
        column_idx: i32::try_from(column).unwrap_or(i32::MAX),
        descending: false,
        nulls_first: false,
    });
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("kernspan ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(metadata))
        .set_sorting_columns(Some(sorted.collect()));
    // Sorted numbers and times are small differences.
    for column in table.columns.iter().filter(|column| column.kind == Kind::Int) {
        let path = ColumnPath::from(column.name);
        properties = properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

/// A file of a table.
pub(crate) struct TableFile {
    path: PathBuf,
    table: &'static Table,
    reader: SerializedFileReader<File>,
    /// The windows that its rows come from.
    pub(crate) windows: BTreeSet<String>,
}

impl TableFile {
    pub(crate) fn open(path: &Path, table: &'static Table) -> Result<Self, TableError> {
        let file = File::open(path).map_err(TableError::reading(path))?;
        let reader = SerializedFileReader::new(file).map_err(TableError::damaged(path))?;
        let problem = |problem| TableError { path: path.to_owned(), problem };
        let metadata = reader.metadata().file_metadata();
        let value = |key: &str| {
            let entry = metadata.key_value_metadata()?.iter().find(|entry| entry.key == key)?;
            entry.value.clone()
        };
        match value(VERSION_KEY) {
            None => return Err(problem(Problem::Foreign(table.name))),
            Some(version) if version != VERSION.to_string() => return Err(problem(Problem::Version(version))),
            Some(_) if value(TABLE_KEY).as_deref() != Some(table.name) => {
                return Err(problem(Problem::Foreign(table.name)));
            }
            Some(_) => {}
        }
        let columns = metadata.schema_descr().columns();
        let has = |name: &str| columns.iter().any(|column| column.name() == name);
        if !table.columns.iter().all(|column| has(column.name)) {
            return Err(problem(Problem::Foreign(table.name)));
        }
        let windows = value(WINDOWS_KEY).unwrap_or_default().split_whitespace().map(ToOwned::to_owned).collect();
        Ok(Self { path: path.to_owned(), table, reader, windows })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn rows(&self) -> usize {
        usize::try_from(self.reader.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Calls `read` with each row group.
    pub(crate) fn groups(&self, mut read: impl FnMut(&RowGroup<'_>) -> ParquetResult<()>) -> Result<(), TableError> {
        for index in 0..self.reader.num_row_groups() {
            let group = self.reader.get_row_group(index).map_err(TableError::damaged(&self.path))?;
            read(&RowGroup(&*group)).map_err(TableError::damaged(&self.path))?;
        }
        Ok(())
    }

    /// Adds all rows to others of the same table.
    pub(crate) fn read_into(&self, rows: &mut Rows) -> Result<(), TableError> {
        enum Read {
            Int(Vec<i64>),
            Bool(Vec<bool>),
            Text(Vec<ByteArray>),
        }
        self.groups(|group| {
            let columns = self.table.columns.iter().map(|column| {
                Ok(match column.kind {
                    Kind::Int => Read::Int(group.ints(column.name)?),
                    Kind::Bool => Read::Bool(group.flags(column.name)?),
                    Kind::Text => Read::Text(group.texts(column.name)?),
                })
            });
            let columns = columns.collect::<ParquetResult<Vec<_>>>()?;
            for row in 0..group.rows() {
                let cells = columns.iter().map(|column| {
                    Ok(match column {
                        Read::Int(values) => values[row].into(),
                        Read::Bool(values) => values[row].into(),
                        Read::Text(values) => values[row].as_utf8()?.into(),
                    })
                });
                rows.push(&cells.collect::<ParquetResult<Vec<_>>>()?);
            }
            Ok(())
        })
    }
}

/// Rows that are stored together.
pub(crate) struct RowGroup<'a>(&'a dyn RowGroupReader);

impl RowGroup<'_> {
    pub(crate) fn rows(&self) -> usize {
        usize::try_from(self.0.metadata().num_rows()).unwrap_or(0)
    }

    pub(crate) fn ints(&self, column: &str) -> ParquetResult<Vec<i64>> {
        self.values::<Int64Type>(column)
    }

    pub(crate) fn flags(&self, column: &str) -> ParquetResult<Vec<bool>> {
        self.values::<BoolType>(column)
    }

    pub(crate) fn texts(&self, column: &str) -> ParquetResult<Vec<ByteArray>> {
        self.values::<ByteArrayType>(column)
    }

    /// Returns the least and the greatest value of a column, if the file says so.
    pub(crate) fn range(&self, column: &str) -> Option<(i64, i64)> {
        match self.0.metadata().columns().iter().find(|it| it.column_descr().name() == column)?.statistics()? {
            Statistics::Int64(statistics) => Some((*statistics.min_opt()?, *statistics.max_opt()?)),
            _ => None,
        }
    }

    fn values<T: DataType>(&self, column: &str) -> ParquetResult<Vec<T::T>> {
        let missing = || ParquetError::General(format!("no column {column}"));
        let columns = self.0.metadata().columns();
        let index = columns.iter().position(|it| it.column_descr().name() == column).ok_or_else(missing)?;
        if columns[index].column_descr().physical_type() != T::get_physical_type() {
            return Err(ParquetError::General(format!("column {column} has another type")));
        }
        let mut reader = get_typed_column_reader::<T>(self.0.get_column_reader(index)?);
        let mut values = Vec::with_capacity(self.rows());
        while values.len() < self.rows() {
            let (_, read, _) = reader.read_records(self.rows() - values.len(), None, None, &mut values)?;
            if read == 0 {
                return Err(ParquetError::EOF(format!(
                    "column {column} has {} rows, not {}",
                    values.len(),
                    self.rows()
                )));
            }
        }
        Ok(values)
    }
}
