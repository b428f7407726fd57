//! The schema of the tables: the single place that names them, their columns and their version.

use std::fmt::Write as _;

/// The version of the schema, in the metadata of each file under [`VERSION_KEY`]. It changes when a column changes its
/// meaning or goes away; a new column or table does not change it.
pub const VERSION: u32 = 1;
/// The key of the schema's version in the metadata of a file.
pub const VERSION_KEY: &str = "kernspan.schema_version";
/// The key of the table's name in the metadata of a file.
pub const TABLE_KEY: &str = "kernspan.table";
/// The key of the windows that the rows of a file come from, as digests with spaces between them. A file that has none
/// but known ones is a copy.
pub const WINDOWS_KEY: &str = "kernspan.windows";

/// A table: a folder with a folder for each run, `steps/run=NAME`.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// The name.
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    /// The columns, in order. Folders add one: `run`.
    pub columns: &'static [Column],
    /// The number of leading columns that the rows of a file are sorted by.
    pub sorted_by: usize,
}

/// A column of a table. It has no null values: an empty text or -1 stands for something that is not known.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// What it holds.
    pub about: &'static str,
}

/// The type of a column: only those that every engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// `INT64`: numbers and nanoseconds.
    Int,
    /// `BOOLEAN`.
    Bool,
    /// `UTF8`.
    Text,
}

impl Kind {
    /// Returns the name that Parquet has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Int => "INT64",
            Self::Bool => "BOOLEAN",
            Self::Text => "UTF8",
        }
    }
}

impl Table {
    /// Returns the index of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

const fn int(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: Kind::Int, about }
}

const fn flag(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: Kind::Bool, about }
}

const fn text(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: Kind::Text, about }
}

const RANK: Column = int("rank", "the rank in the distributed run, from 0");
const STEP: Column = int("step", "the number of the step");
const START: Column = int("start_ns", "the start, on the clock of the rank's host, since 1970");
const PATH: Column = text("path", "the names of the span and those around it, outermost first, as `step;forward`");
const LOCATION: Column = text("location", "the place in the source, as `src/main.rs:42`");

/// The runs.
pub const RUNS: Table = Table {
    name: "runs",
    about: "a recorded window, with what it tells about the run: no process knows of the others",
    columns: &[
        RANK,
        START,
        int("world_size", "the number of ranks in the run"),
        text("process", "the name of the program"),
        text("framework", "the framework that the program uses"),
        text("writer", "the version of kernspan that wrote it"),
    ],
    sorted_by: 2,
};

/// The ranks.
pub const RANKS: Table = Table {
    name: "ranks",
    about: "a recorded window of a rank",
    columns: &[
        RANK,
        START,
        int("duration_ns", "the length of the window"),
        int("window", "the number of the window"),
        int("world_size", "the number of ranks in the run"),
        text("host", "the name of the host"),
        int("pid", "the process id"),
        text("device", "the name of its first GPU"),
        int("whole_steps", "the number of steps that were recorded from their begin to their end"),
        int("losses", "the number of spans, kernels and others that could not be kept"),
    ],
    sorted_by: 2,
};

/// The steps.
pub const STEPS: Table = Table {
    name: "steps",
    about: "a step of a rank, recorded or not",
    columns: &[
        RANK,
        STEP,
        START,
        int("duration_ns", "the time from start to end"),
        flag("recorded", "whether it is in a recorded window"),
        flag("whole", "whether it was recorded from its begin to its end, so that it can be compared"),
        int("window", "the number of the window; -1 if it was not recorded"),
    ],
    sorted_by: 2,
};

/// The spans.
pub const SPANS: Table = Table {
    name: "spans",
    about: "the spans of a rank in a step that have the same path",
    columns: &[
        RANK,
        STEP,
        PATH,
        text("name", "the name of the span"),
        LOCATION,
        int("calls", "the number of spans"),
        int("self_ns", "their time on the host, without spans inside them"),
        int("busy_ns", "the part of `self_ns` in which they do not wait for GPUs"),
        int("total_ns", "their time on the host"),
        int("gpu_ns", "the time of their own work on GPUs, without collectives"),
        int("collective_ns", "the time of their own collectives"),
        START,
    ],
    sorted_by: 3,
};

/// The collectives.
pub const COLLECTIVES: Table = Table {
    name: "collectives",
    about: "an exchange of data with other ranks in a whole step, as one rank has it",
    columns: &[
        RANK,
        STEP,
        START,
        int("duration_ns", "the time from the rank's arrival to the end"),
        text("group_name", "the name of the group of ranks; empty if it is not known"),
        int("number", "the number among those of the same rank, step and group, from 0: equal on all ranks"),
        text("operation", "the operation, as the framework or the kernel calls it"),
        flag("pairwise", "whether it is between two ranks; these are numbered separately"),
        text("dtype", "the type of the elements"),
        int("bytes", "the size of the larger of input and output; 0 if it is not known"),
        int("group_size", "the number of ranks in the group; 0 if it is not known"),
        int("exposed_ns", "the part of the duration in which no other kernel runs on the GPU"),
        PATH,
    ],
    sorted_by: 3,
};

/// The kernels.
pub const KERNELS: Table = Table {
    name: "kernels",
    about: "the kernels, copies or fills of a rank in a step that have the same name",
    columns: &[
        RANK,
        STEP,
        text("name", "the name of the kernel"),
        text("kind", "`kernel`, `collective`, `copy` or `fill`"),
        int("calls", "the number of executions"),
        int("total_ns", "their time on the GPU"),
        int("min_ns", "the shortest"),
        int("max_ns", "the longest"),
        int("bytes", "the bytes copied or filled"),
    ],
    sorted_by: 3,
};

/// The work, which is not written by default.
pub const WORK: Table = Table {
    name: "work",
    about: "a kernel, copy or fill",
    columns: &[
        RANK,
        STEP,
        START,
        int("duration_ns", "the time from start to end"),
        text("name", "the name of the kernel"),
        text("kind", "`kernel`, `collective`, `copy` or `fill`"),
        int("device", "the number of the GPU"),
        int("stream", "the number of the stream"),
        int("bytes", "the bytes copied or filled"),
        int("correlation", "the number that it shares with the call that caused it"),
        PATH,
    ],
    sorted_by: 3,
};

/// The findings.
pub const FINDINGS: Table = Table {
    name: "findings",
    about: "something that makes the steps of a rank slow",
    columns: &[
        RANK,
        START,
        int("window", "the number of the window"),
        text("kind", "the kind, such as `exposed-collective`"),
        text("title", "one sentence"),
        PATH,
        LOCATION,
        int("least_ns", "what a fix saves of a step, at least"),
        int("likely_ns", "what it likely saves"),
        int("most_ns", "what it saves at most"),
        int("step_ns", "the time of a step"),
        int("steps", "the number of steps that it was seen in"),
    ],
    sorted_by: 3,
};

/// All tables.
pub const TABLES: [&Table; 8] = [&RUNS, &RANKS, &STEPS, &SPANS, &COLLECTIVES, &KERNELS, &WORK, &FINDINGS];

/// Returns a path of names as one text: with semicolons between them, and a backslash before those in names.
pub fn join_path<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names = names.into_iter().map(|name| name.replace('\\', r"\\").replace(';', r"\;"));
    names.collect::<Vec<_>>().join(";")
}

/// Returns the names of a path that [`join_path`] has joined.
pub fn split_path(path: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            ';' => {
                names.push(String::new());
                continue;
            }
            '\\' => letters.next().unwrap_or(letter),
            letter => letter,
        };
        names.last_mut().into_iter().for_each(|name| name.push(letter));
    }
    names
}

/// Returns the tables as Markdown, as in `docs/tables.md`.
pub fn markdown() -> String {
    let mut text = String::new();
    for table in TABLES {
        let Table { name, about, columns, sorted_by } = table;
        let order: Vec<_> = columns.iter().take(*sorted_by).map(|column| format!("`{}`", column.name)).collect();
        let _ = write!(text, "### `{name}`\n\nA row is {about}. Sorted by {}.\n\n", order.join(", "));
        let _ = write!(text, "| column | type | |\n|---|---|---|\n");
        for Column { name, kind, about } in *columns {
            let _ = writeln!(text, "| `{name}` | {} | {about} |", kind.as_str());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{TABLES, join_path, markdown, split_path};
    use std::{collections::BTreeSet, fs, path::Path};

    #[test]
    fn paths_keep_their_names() {
        for names in [vec!["a"], vec!["a", "b c"], vec![r"a;b\", r"\;", "", "c"]] {
            assert_eq!(split_path(&join_path(names.iter().copied())), names);
        }
        assert_eq!(join_path(["train", "a;b"]), r"train;a\;b");
    }

    #[test]
    fn columns_have_names_of_their_own() {
        for table in TABLES {
            let names: BTreeSet<_> = table.columns.iter().map(|column| column.name).collect();
            assert_eq!(names.len(), table.columns.len(), "{}", table.name);
        }
    }

    #[test]
    fn the_documentation_has_the_schema() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tables.md");
        let text = fs::read_to_string(&file).unwrap();
        let (before, _) = text.split_once("### `runs`").unwrap();
        let new = format!("{before}{}\n", markdown().trim_end());
        if std::env::var_os("KERNSPAN_BLESS").is_some() {
            fs::write(&file, &new).unwrap();
        } else {
            assert_eq!(text, new, "KERNSPAN_BLESS=1 rewrites it");
        }
    }
}
