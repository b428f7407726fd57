//! The command `config`: checks the settings of a profiler, and says where each came from.

use crate::{
    fault::{Fault, say},
    input::name,
    output::{Section, Style},
};
use clap::Subcommand;
use kernspan::{
    config::{Explained, Settings},
    report::Table,
};
use serde_json::json;
use std::{
    io::{self, Write},
    path::PathBuf,
};

/// Check the settings of a profiler, or explain where they come from
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Check files: unknown keys, wrong types and contradictions are errors with a line and a suggestion
    Check {
        /// TOML, YAML or JSON files, with a section `profiling` or with the settings alone
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the effective settings, and whether each comes from a file, a variable or the defaults
    Explain {
        /// A file that the program reads. Variables such as KERNSPAN_SCHEDULE override it
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        style: Style,
    },
}

const AFTER_HELP: &str = "\
Examples:
  kernspan config check train.yaml
  kernspan config explain train.yaml
  KERNSPAN_SCHEDULE=steps=100..110 kernspan config explain

Exit status: 0 success; 1 a setting is invalid, or a file could not be read; 2 usage error";

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        match &self.action {
            Action::Check { files } => check(files),
            Action::Explain { file, style } => {
                let settings = match file {
                    Some(file) => Settings::new().with_file(file),
                    None => Ok(Settings::new()),
                };
                let settings = settings.and_then(Settings::with_env).and_then(|settings| {
                    settings.check()?;
                    Ok(settings)
                });
                let settings = settings.map_err(|error| Fault::Failed(error.to_string()))?;
                style.print(&[section(&settings)])
            }
        }
    }
}

fn check(files: &[PathBuf]) -> Result<(), Fault> {
    let mut are_valid = true;
    for file in files {
        let settings = Settings::new().with_file(file).and_then(|settings| {
            settings.check()?;
            Ok(settings)
        });
        match settings {
            Ok(settings) if settings.is_enabled() => {
                writeln!(io::stdout(), "{}: valid; schedule: {}", name(file), settings.schedule())?;
            }
            Ok(_) => writeln!(io::stdout(), "{}: valid; records nothing", name(file))?,
            Err(error) => {
                say(&error.to_string());
                are_valid = false;
            }
        }
    }
    if are_valid { Ok(()) } else { Err(Fault::Incomplete) }
}

fn section(settings: &Settings) -> Section {
    let rows = settings.explain();
    let mut table = Table::default();
    table.text("Setting", &rows, |row: &Explained| row.key.to_owned());
    table.text("Value", &rows, |row: &Explained| match row.value.as_str() {
        "" => kernspan::units::NOTHING.to_owned(),
        value => value.to_owned(),
    });
    table.text("From", &rows, |row: &Explained| row.origin.to_string());
    let json = |row: &Explained| json!({"key": row.key, "value": row.value, "from": row.origin.to_string()});
    let below = match settings.is_enabled() {
        true => format!("schedule: {}", settings.schedule()),
        false => "records nothing: set KERNSPAN=on, or any other setting".to_owned(),
    };
    Section {
        title: "Settings".to_owned(),
        key: "settings",
        table: Some(table),
        rows: rows.iter().map(json).collect(),
        below,
        ..Section::default()
    }
}
