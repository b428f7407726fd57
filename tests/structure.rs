//! Tests of the crates' structure: modules use lower floors only, and no two files use each other.
//!
//! ARCHITECTURE.md says why. Test modules are not checked.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The floors of ARCHITECTURE.md, lowest first. A module may use modules on lower floors only.
const FLOORS: &[&[&str]] = &[
    &["trace"],
    &[
        "activity",
        "budget",
        "clock",
        "config_error",
        "delivery",
        "failure",
        "file",
        "gallop_search",
        "hint",
        "kernel_names",
        "recent_readings",
        "schedule",
        "span_table",
        "thread",
        "units",
    ],
    &["cpu_time", "disk_limit", "heap", "sampling"],
    &["analysis", "progress", "step_sample"],
    &["request"],
    &["recording", "flight", "serving"],
    &["host", "correlate", "report"],
    &["gpu", "framework", "export"],
    &["replay", "collector", "memory", "vitals", "error"],
    &["steps"],
    &["pipeline", "read", "session"],
    &["ending", "control"],
    &["exit"],
    &["profiler"],
    &["builder"],
    &["config"],
];

/// Uses that the floors would allow and the design does not: exporters and reports see traces only.
const FORBIDDEN: &[(&str, &str)] =
    &[("export", "recording"), ("report", "recording"), ("export", "host"), ("host", "schedule")];

/// The files of a crate.
struct Crate {
    name: String,
    sources: Vec<Source>,
    /// The paths of the names that the crate exports at its root, where other files may use them from.
    exports: BTreeMap<String, Vec<String>>,
}

struct Source {
    /// The path of the module, as `["host", "lane", "join"]`.
    module: Vec<String>,
    code: String,
}

#[test]
fn modules_use_lower_floors_only() {
    let floor_of = |name: &str| FLOORS.iter().position(|floor| floor.contains(&name));
    let mut wrong = BTreeSet::new();
    let kernspan = Crate::at(".");
    for source in &kernspan.sources {
        let from = source.module[0].as_str();
        for used in kernspan.uses(source) {
            let (Some(from_floor), Some(to)) = (floor_of(from), used.first()) else { continue };
            let Some(to_floor) = floor_of(to) else { continue };
            let same = from == to;
            if !same && (to_floor >= from_floor || FORBIDDEN.contains(&(from, to))) {
                wrong.insert(format!("{} uses {}", source.module.join("::"), used.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_module_has_a_floor() {
    let listed: BTreeSet<_> = FLOORS.iter().flat_map(|floor| floor.iter().copied()).collect();
    let kernspan = Crate::at(".");
    let modules: BTreeSet<_> = kernspan.sources.iter().map(|source| source.module[0].clone()).collect();
    let missing: Vec<_> = modules.iter().filter(|name| !listed.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(listed.iter().all(|name| modules.contains(*name)));
}

/// The module `trace` is not checked, since its views resolve each other.
#[test]
fn no_files_use_each_other() {
    let mut circles = Crate::at(".").circles(|source| source.module[0] != "trace");
    for folder in ["burn", "candle", "check", "cli", "cupti-sys", "nccl", "nvtx-sys", "otlp"] {
        circles.extend(Crate::at(&format!("integrations/{folder}")).circles(|_| true));
    }
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn circles_through_names_of_the_root_are_found() {
    let source = |module: &str, code: &str| Source { module: vec![module.to_owned()], code: code.to_owned() };
    let root = "pub use self::{one::One, two::{Three, Two}};";
    let crate_of = |code: &str| {
        let sources = vec![source("one", code), source("two", "use crate::one::One;")];
        Crate::new("sample", root, sources).circles(|_| true)
    };
    for code in ["use crate::Two;", "use crate::{Error, Three};", "use super::two;", "fn f() -> crate::Two"] {
        assert_eq!(crate_of(code), ["sample: one ↔ two", "sample: two ↔ one"].map(String::from).into(), "{code}");
    }
    assert!(crate_of("use crate::{Error, One}; use other::Two;").is_empty());
}

impl Crate {
    /// Reads the crate in a folder of the repository.
    fn at(folder: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("src");
        let mut files = Vec::new();
        list(&root, &mut files);
        let (mut sources, mut exports) = (Vec::new(), String::new());
        for file in files {
            let path = file.strip_prefix(&root).unwrap().with_extension("");
            let mut module: Vec<String> = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            module.pop_if(|last| last == "mod");
            let is_test = ["tests", "sample", "samples"];
            if file.extension().is_none_or(|extension| extension != "rs")
                || module.iter().any(|part| is_test.contains(&part.as_str()))
            {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let without_comments = text.lines().map(|line| line.split("//").next().unwrap());
            let code = without_comments.collect::<Vec<_>>().join(" ");
            match module == ["lib"] || module == ["main"] {
                true => exports = code,
                false => sources.push(Source { module, code }),
            }
        }
        assert!(!sources.is_empty(), "{folder}");
        Self::new(folder, &exports, sources)
    }

    fn new(name: &str, root: &str, sources: Vec<Source>) -> Self {
        let mut exports = Vec::new();
        for (start, _) in root.match_indices("use self::") {
            expand(&root[start + "use self::".len()..], &[], &mut exports);
        }
        let mut exports: BTreeMap<_, _> =
            exports.into_iter().filter_map(|path| Some((path.last()?.clone(), path))).collect();
        // A function may have the name of its module.
        exports.retain(|name, _| !sources.iter().any(|source| source.module == [name.as_str()]));
        Self { name: name.to_owned(), sources, exports }
    }

    /// The paths that are named in a file, from the root of the crate.
    fn uses(&self, source: &Source) -> Vec<Vec<String>> {
        let resolve = |path: Vec<String>| path.first().and_then(|name| self.exports.get(name)).cloned().unwrap_or(path);
        source.uses().into_iter().map(resolve).collect()
    }

    /// Returns the pairs of files that use each other, one perhaps by way of others.
    fn circles(&self, is_checked: fn(&Source) -> bool) -> BTreeSet<String> {
        let modules: BTreeSet<&[String]> = self.sources.iter().map(|source| &*source.module).collect();
        let mut graph: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> = BTreeMap::new();
        for source in self.sources.iter().filter(|source| is_checked(source)) {
            // The longest part of the path that is a file. Re-exports of a `mod.rs` are not followed.
            let file_of = |used: Vec<String>| {
                (1..=used.len()).rev().map(|length| used[..length].to_vec()).find(|path| modules.contains(&**path))
            };
            // A module and the files in its folder may use each other: they are one thing in parts.
            let is_around = |path: &Vec<String>| source.module.starts_with(path);
            let used = self.uses(source).into_iter().filter_map(file_of).filter(|path| !is_around(path));
            graph.entry(source.module.clone()).or_default().extend(used);
        }
        let mut circles = BTreeSet::new();
        for start in graph.keys() {
            let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
            while let Some(file) = next.pop() {
                for used in graph.get(file).into_iter().flatten() {
                    if used == start {
                        circles.insert(format!("{}: {} ↔ {}", self.name, start.join("::"), file.join("::")));
                    } else if seen.insert(used) {
                        next.push(used);
                    }
                }
            }
        }
        circles
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => list(&path, files),
            false => files.push(path),
        }
    }
}

impl Source {
    /// The paths that are named in the code, from the root of the crate.
    fn uses(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for (start, _) in self.code.match_indices("crate::") {
            expand(&self.code[start + "crate::".len()..], &[], &mut found);
        }
        for (start, _) in self.code.match_indices("self::") {
            expand(&self.code[start + "self::".len()..], &self.module, &mut found);
        }
        // A `super::` that does not follow another one.
        for (start, _) in self.code.match_indices("super::").filter(|(start, _)| !self.code[..*start].ends_with("::")) {
            let (mut rest, mut around) = (&self.code[start..], self.module.len());
            while let Some(after) = rest.strip_prefix("super::") {
                (rest, around) = (after, around.saturating_sub(1));
            }
            expand(rest, &self.module[..around], &mut found);
        }
        found
    }
}

/// Splits a path, or a tree of paths in braces, into its parts, and adds each path to `found`.
fn expand(text: &str, prefix: &[String], found: &mut Vec<Vec<String>>) {
    let text = text.trim_start();
    if let Some(tree) = text.strip_prefix('{') {
        let (mut depth, mut start) = (0, 0);
        for (at, character) in tree.char_indices() {
            match character {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    if !tree[start..at].trim().is_empty() {
                        expand(&tree[start..at], prefix, found);
                    }
                    start = at + 1;
                    if character == '}' {
                        return;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
        return;
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let path: Vec<String> = prefix.iter().cloned().chain([text[..end].to_owned()]).collect();
    match text[end..].strip_prefix("::") {
        Some(rest) => expand(rest, &path, found),
        None => found.push(path),
    }
}
