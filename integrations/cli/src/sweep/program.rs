//! Runs of a program and the traces they leave, and runs recorded earlier.

use super::trial::{Measured, Trial};
use crate::{
    fault::{Fault, reason_of, say},
    file::cannot_write,
    input::{self, Inputs},
};
use kernspan::export::write_file;
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
    time::SystemTime,
};

/// A setting of the program, and its values.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) values: Vec<String>,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected NAME=VALUE,VALUE…, found {text:?}");
        let (name, values) = text.split_once('=').ok_or_else(expected)?;
        let values: Vec<_> = values.split(',').map(|value| value.trim().to_owned()).collect();
        let is_bad = name.trim().is_empty() || values.iter().any(String::is_empty) || text.contains('\0');
        if is_bad { Err(expected()) } else { Ok(Self { name: name.trim().to_owned(), values }) }
    }
}

/// A program, and where its traces are.
pub(super) struct Program<'a> {
    /// The program and its arguments.
    pub(super) command: &'a [OsString],
    /// The folder in which it leaves its traces.
    pub(super) traces: String,
    /// The folder to which they are copied.
    pub(super) output: Option<&'a Path>,
}

/// The files in a folder, with their modification time and size.
type Files = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

impl Program<'_> {
    /// Runs the program with each value.
    pub(super) fn run_all(&self, setting: &Setting) -> Result<Vec<Trial>, Fault> {
        let mut trials = Vec::new();
        for value in &setting.values {
            let result = self.run(&setting.name, value)?;
            if let Err(problem) = &result {
                say(&format!("{}={value}: {problem}", setting.name));
            }
            trials.push(Trial::new(value.clone(), result));
        }
        Ok(trials)
    }

    fn run(&self, name: &str, value: &str) -> Result<Result<Measured, String>, Fault> {
        let folder = PathBuf::from(self.traces.replace("{}", value));
        let before = files(&folder);
        let words: Vec<_> = self.command.iter().map(|word| with_value(word, value)).collect();
        let [program, arguments @ ..] = words.as_slice() else {
            return Err(Fault::Usage("expected a program after --".to_owned()));
        };
        say(&format!("running {} with {name}={value}", program.display()));
        let mut command = Command::new(program);
        // Standard output is reserved for the table.
        command.args(arguments).env(name, value).stdin(Stdio::null()).stdout(io::stderr());
        let cannot = |error| Fault::Failed(format!("cannot run {}: {}", program.display(), reason_of(&error)));
        let status = command.status().map_err(cannot)?;
        if !status.success() {
            return Ok(Err(format!("the program failed: {status}")));
        }
        let mut new = files(&folder);
        new.retain(|path, state| before.get(path) != Some(state));
        if new.is_empty() {
            return Ok(Err(format!("the program left no trace in {}", folder.display())));
        }
        let new: Vec<_> = new.into_keys().collect();
        if let Some(output) = self.output {
            keep(&new, &folder, &output.join(format!("{name}={}", file_name(value))))?;
        }
        Ok(match Inputs::of(new, false).read() {
            Ok(read) => Measured::of(&read),
            Err(_) => Err("none of its traces could be read".to_owned()),
        })
    }
}

/// Substitutes the value for `{}` in a word of a command.
fn with_value(word: &OsStr, value: &str) -> OsString {
    match word.to_str() {
        Some(text) => text.replace("{}", value).into(),
        None => word.to_owned(),
    }
}

/// Returns the traces in a folder and its subfolders; none if it cannot be read.
fn files(folder: &Path) -> Files {
    let mut files = Files::new();
    for path in input::traces_in(folder) {
        if let Ok(state) = fs::metadata(&path) {
            files.insert(path, (state.modified().ok(), state.len()));
        }
    }
    files
}

/// Copies files to a folder, keeping their subfolders.
fn keep(files: &[PathBuf], from: &Path, to: &Path) -> Result<(), Fault> {
    for file in files {
        let new = to.join(file.strip_prefix(from).unwrap_or(file));
        Inputs::of(vec![file.clone()], false).check_output(Some(&new))?;
        new.parent().map_or(Ok(()), fs::create_dir_all).map_err(|error| cannot_write(&new, &error))?;
        let copied = write_file(&new, |out| io::copy(&mut fs::File::open(file)?, out).map(drop));
        copied.map_err(|error| cannot_write(&new, &error))?;
    }
    Ok(())
}

/// Returns a value for use in a file name.
fn file_name(value: &str) -> String {
    value.replace(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '-' | '+' | '_'), "_")
}

/// Runs recorded earlier, and the name of the setting that differs between them.
pub(super) struct Recorded<'a> {
    pub(super) name: &'a str,
    pub(super) runs: &'a [PathBuf],
}

impl Recorded<'_> {
    /// Reads the runs.
    pub(super) fn read_all(&self) -> Vec<Trial> {
        self.runs.iter().map(|run| self.read(run)).collect()
    }

    /// Returns the file or folder of each run.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.runs.iter().map(|run| self.split(run).1).collect()
    }

    fn read(&self, run: &Path) -> Trial {
        let (value, path) = self.split(run);
        let result = match path.is_dir() && input::traces_in(&path).is_empty() {
            true => Err(input::why_nothing_in(&path)),
            false => Inputs::of(vec![path], true).read().map_err(|_| "none of its traces could be read".to_owned()),
        };
        let result = result.and_then(|read| Measured::of(&read));
        if let Err(problem) = &result {
            say(&format!("{}={value}: {problem}", self.name));
        }
        Trial::new(value, result)
    }

    /// Returns the value of a run, and its path: `32=runs/first`, `runs/32` or `runs/BATCH_SIZE=32`.
    fn split(&self, run: &Path) -> (String, PathBuf) {
        if let (false, Some((value, path))) = (run.exists(), run.to_str().and_then(|text| text.split_once('='))) {
            return (value.to_owned(), path.into());
        }
        let last = run.file_name().map_or_else(|| run.display().to_string(), |name| name.display().to_string());
        let value = last.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('='));
        (value.unwrap_or(&last).to_owned(), run.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{Setting, file_name};

    #[test]
    fn a_setting_has_a_name_and_values() {
        let setting: Setting = "BATCH_SIZE=16, 32".parse().unwrap();
        assert_eq!((setting.name.as_str(), setting.values), ("BATCH_SIZE", vec!["16".to_owned(), "32".to_owned()]));
        for wrong in ["", "BATCH_SIZE", "=1", "B=", "B=1,,2"] {
            assert!(wrong.parse::<Setting>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_names_of_files() {
        assert_eq!([file_name("1e-3"), file_name("a/../b c")], ["1e-3", "a_.._b_c"]);
    }
}
