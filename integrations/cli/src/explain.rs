//! The command `explain`: what a kind of finding means, and what to do about it.

use crate::{
    fault::Fault,
    output::{Format, Section, Style},
};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kernspan::{
    analysis::FindingKind,
    report::{Prose, Table},
};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Explain a kind of finding: when it is reported, how its saving is computed, and what to change
///
/// Without a kind, all kinds are listed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan explain
  kernspan explain no-tensor-cores
  kernspan explain --format md host-sync

Exit status: 0 success; 2 usage error, such as an unknown kind")]
pub(crate) struct Args {
    /// A kind of finding, as `kernspan advise` prints it in brackets
    #[arg(value_name = "KIND", value_parser = kinds(), hide_possible_values = true)]
    kind: Option<FindingKind>,
    #[command(flatten)]
    style: Style,
}

/// Returns the parser of a kind. The error for an unknown kind suggests similar ones.
fn kinds() -> impl TypedValueParser<Value = FindingKind> {
    let value = |kind: FindingKind| PossibleValue::new(kind.as_str()).help(kind.summary());
    let parser = PossibleValuesParser::new(FindingKind::ALL.map(value));
    parser.map(|name| FindingKind::ALL.into_iter().find(|kind| kind.as_str() == name).unwrap_or(FindingKind::ALL[0]))
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        match (self.kind, self.style.format()) {
            // The text is already Markdown.
            (Some(kind), Format::Md) => Ok(writeln!(io::stdout(), "## {kind}\n\n{}", kind.explanation())?),
            (Some(kind), _) => self.style.print(&[self.one(kind)]),
            (None, _) => self.style.print(&[all()]),
        }
    }

    /// Returns the text about a kind.
    fn one(&self, kind: FindingKind) -> Section {
        let prose = Prose::of_markdown(&format!("{kind}: {}\n\n{}", kind.summary(), kind.explanation()));
        let prose = match self.style.width {
            Some(columns) => prose.width(columns),
            None => prose.fit_terminal(),
        };
        Section {
            title: kind.to_string(),
            key: "findings",
            below: prose.to_string(),
            rows: vec![row(kind)],
            ..Section::default()
        }
    }
}

/// Returns the table of all kinds.
fn all() -> Section {
    let kinds = &FindingKind::ALL;
    let mut table = Table::default();
    table.text("Kind", kinds, ToString::to_string);
    table.text("Problem", kinds, |kind| kind.summary().to_owned()).keep_start();
    Section {
        title: "Kinds of findings".to_owned(),
        key: "findings",
        table: Some(table),
        rows: kinds.iter().copied().map(row).collect(),
        below: "kernspan explain KIND explains one of them".to_owned(),
        ..Section::default()
    }
}

fn row(kind: FindingKind) -> Value {
    json!({"kind": kind.as_str(), "summary": kind.summary(), "explanation": kind.explanation()})
}
