//! Parquet tables of what [kernspan](https://docs.rs/kernspan) records: steps, spans, collectives and kernels of one
//! rank or thousands, for any SQL engine and any data frame.
//!
//! [`Parquet`] is an exporter, [`Tables`] makes tables of any traces, as does `kernspan tables` on the command line.
//! The folders are Hive-partitioned by run, `steps/run=night-7/….parquet`. [`schema`] documents the columns; it is
//! versioned, and so are the [queries](sql::QUERIES).
//!
//! ```no_run
//! use kernspan_parquet::{Parquet, compare_ranks};
//!
//! # fn show() -> Result<(), Box<dyn std::error::Error>> {
//! let builder = kernspan::Profiler::builder().export(Parquet::to_dir("tables"));
//! // Later, with the tables of all ranks:
//! compare_ranks("tables".as_ref(), None)?.waits.late().iter().for_each(|late| println!("{late}"));
//! # drop(builder);
//! # Ok(())
//! # }
//! ```
//!
//! [`compare_ranks`] tells which rank the others wait for, with bounded memory.

mod file;
mod folder;
mod parquet;
mod ranks;
mod rows;
pub mod schema;
pub mod sql;
mod tables;

pub use self::{
    file::TableError,
    folder::{Compacted, TableFolder},
    parquet::Parquet,
    ranks::{ComparedRanks, compare_ranks},
    rows::{Cell, Rows},
    tables::Tables,
};
