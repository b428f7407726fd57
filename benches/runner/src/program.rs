//! The command line.

use crate::{
    case::{Case, Framework, Variant},
    row::Row,
    stress,
    stressor::{self, Stress},
};
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

/// Runs the cases that the command line asks for, as the documentation of this crate says.
///
/// # Errors
///
/// If the command line is not understood, if there is no GPU, or if a case fails; the others run nevertheless.
pub fn run<F: Framework>(cases: &'static [Case<F>]) -> Result<(), Box<dyn Error>> {
    let (flags, names): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    if let (true, [kind, folder]) = (has("--stressor"), &names[..]) {
        return stressor::run(kind, Path::new(folder), has("--tiny"), cases);
    }
    const FLAGS: [&str; 6] = ["--tiny", "--time", "--record", "--stress", "--even", "--odd"];
    let kind = |flag: &String| flag.strip_prefix("--stress=").and_then(Stress::from_name);
    if let Some(flag) = flags.iter().find(|flag| !FLAGS.contains(&flag.as_str()) && kind(flag).is_none()) {
        return Err(format!("unknown flag {flag}").into());
    }
    let kinds: Vec<_> = flags.iter().filter_map(kind).collect();
    let [folder, names @ ..] = &names[..] else {
        let usage = "usage: trainings [--tiny] [--time] [--record] FOLDER [CASE...], or trainings --stress[=KIND]... \
                     [--tiny] [--even] [--odd] FOLDER [CASE...]";
        return Err(usage.into());
    };
    if let Some(name) = names.iter().find(|name| cases.iter().all(|case| case.name != *name)) {
        let known: Vec<_> = cases.iter().map(|case| case.name).collect();
        return Err(format!("unknown case {name}: expected one of {}", known.join(", ")).into());
    }
    fs::create_dir_all(folder)?;
    let chosen = cases.iter().filter(|case| names.is_empty() || names.iter().any(|name| name == case.name));
    if has("--stress") || !kinds.is_empty() {
        let kinds = if kinds.is_empty() { Stress::ALL.to_vec() } else { kinds };
        // A calibration would take as long as all of the rest.
        let chosen = chosen.filter(|case| case.calibrate.is_none()).enumerate();
        let half = chosen.filter(|(index, _)| if index % 2 == 0 { !has("--odd") } else { !has("--even") });
        let half: Vec<_> = half.map(|(_, case)| case).collect();
        return stress::run(&half, &kinds, Path::new(folder), has("--tiny"));
    }
    let device = F::device(has("--tiny"))?;
    let mut rows: Vec<Row<F>> = chosen.map(|case| Row::new(case, &device, has("--tiny"))).collect();
    let table = PathBuf::from(folder).join(format!("{}.jsonl", F::NAME));
    let mut failed = Vec::new();
    for index in 0..rows.len() {
        let row = &mut rows[index];
        if let Err(error) = row.calibrate().and_then(|()| if has("--record") { Ok(()) } else { row.time() }) {
            failed.push(format!("{}: {}", row.case.name, error.into()));
        }
        write(&table, &rows)?;
    }
    for index in 0..rows.len() {
        for variant in Variant::ALL {
            if has("--time") {
                continue;
            }
            if let Err(error) = rows[index].record(variant, Path::new(folder)) {
                failed.push(format!("{}, {}: {error}", rows[index].case.name, variant.name()));
            }
            write(&table, &rows)?;
        }
    }
    rows.iter().flat_map(Row::lines).for_each(|line| println!("{line}"));
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

fn write<F: Framework>(table: &Path, rows: &[Row<F>]) -> std::io::Result<()> {
    fs::write(table, rows.iter().flat_map(Row::lines).map(|line| line + "\n").collect::<String>())
}
