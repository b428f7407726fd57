//! The lines about files that were written.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The files that were written. `Display` writes a line for each kind of file and folder.
pub(super) struct WrittenFiles<'a>(pub(super) &'a [PathBuf]);

/// Files of one kind.
struct Kind<'a> {
    /// The pattern of their names, such as `*.pftrace`.
    pattern: String,
    /// The name of the kind in the plural, such as `Perfetto traces`.
    name: &'static str,
    /// The folders that they are in, with the files.
    folders: Vec<(&'a Path, Vec<&'a Path>)>,
}

impl WrittenFiles<'_> {
    /// The kinds of files, by the end of their names.
    const ENDINGS: [(&'static str, &'static str); 7] = [
        (".pt.trace.json.gz", "Chrome traces"),
        (".pt.trace.json", "Chrome traces"),
        (".pftrace", "Perfetto traces"),
        (".xplane.pb", "XProf profiles"),
        (".gpu.folded", "folded stacks of GPUs"),
        (".folded", "folded stacks"),
        (".kernspan", "recorded windows"),
    ];
    /// The start of the names of TensorBoard's files.
    const EVENTS: &'static str = "events.out.tfevents.";
    /// The number of folders with files of one kind that have a line each.
    const FOLDERS: usize = 3;

    /// Returns the pattern and the name of a file's kind.
    fn kind(file: &Path) -> (String, &'static str) {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        if name.starts_with(Self::EVENTS) {
            return (format!("{}*", Self::EVENTS), "TensorBoard events");
        }
        if let Some((ending, kind)) = Self::ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)) {
            return (format!("*{ending}"), kind);
        }
        (file.extension().map_or("*".to_owned(), |extension| format!("*.{}", extension.to_string_lossy())), "files")
    }

    /// Returns the kinds, in the order of their first files.
    fn kinds(&self) -> Vec<Kind<'_>> {
        let mut kinds: Vec<Kind<'_>> = Vec::new();
        for file in self.0 {
            let (pattern, name) = Self::kind(file);
            let folder = file.parent().unwrap_or(Path::new(""));
            let found = kinds.iter().position(|kind| kind.pattern == pattern).unwrap_or_else(|| {
                kinds.push(Kind { pattern, name, folders: Vec::new() });
                kinds.len() - 1
            });
            let folders = &mut kinds[found].folders;
            // Files of one folder mostly come one after the other.
            match folders.iter_mut().rev().find(|(other, _)| *other == folder) {
                Some((_, files)) => files.push(file),
                None => folders.push((folder, vec![file])),
            }
        }
        kinds
    }
}

impl fmt::Display for WrittenFiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kinds().iter().try_for_each(|kind| kind.fmt(f))
    }
}

impl fmt::Display for Kind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pattern, name, folders } = self;
        if folders.len() > WrittenFiles::FOLDERS {
            let count: usize = folders.iter().map(|(_, files)| files.len()).sum();
            let around = common_folder(folders.iter().map(|(folder, _)| *folder));
            let folders = folders.len();
            return writeln!(f, "wrote {count} {name} ({pattern}) to {folders} folders in {}", shown(&around));
        }
        for (folder, files) in folders {
            match files[..] {
                [file] => writeln!(f, "wrote {}", file.display())?,
                _ => writeln!(f, "wrote {} {name} ({pattern}) to {}", files.len(), shown(folder))?,
            }
        }
        Ok(())
    }
}

/// Returns the innermost folder that all of these are in.
fn common_folder<'a>(folders: impl Iterator<Item = &'a Path>) -> PathBuf {
    let common = |a: PathBuf, b: PathBuf| {
        a.components().zip(b.components()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
    };
    folders.map(Path::to_owned).reduce(common).unwrap_or_default()
}

/// Returns the path to print: `.` for the current folder.
fn shown(folder: &Path) -> impl fmt::Display {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.display()
}

#[cfg(test)]
mod tests {
    use super::WrittenFiles;
    use std::path::PathBuf;

    #[test]
    fn files_of_a_kind_in_a_folder_are_a_line() {
        let mut files = vec![PathBuf::from("runs/mnist/events.out.tfevents.0000000003.a-host.7.0")];
        for window in 0..300 {
            files.push(format!("runs/mnist/host_7.{window}.pftrace").into());
            files.push(format!("runs/mnist/plugins/profile/{window}/host.xplane.pb").into());
            files.push(format!("{window}.gpu.folded").into());
        }
        files.extend(["a/1.csv", "b/2.csv", "b/3.csv"].map(PathBuf::from));
        assert_eq!(
            WrittenFiles(&files).to_string(),
            "\
wrote runs/mnist/events.out.tfevents.0000000003.a-host.7.0
wrote 300 Perfetto traces (*.pftrace) to runs/mnist
wrote 300 XProf profiles (*.xplane.pb) to 300 folders in runs/mnist/plugins/profile
wrote 300 folded stacks of GPUs (*.gpu.folded) to .
wrote a/1.csv
wrote 2 files (*.csv) to b
"
        );
        assert_eq!(WrittenFiles(&[]).to_string(), "");
    }
}
