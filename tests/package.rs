//! Tests of the package's files: those that the README refers to are there.

use std::{fs, path::Path};

/// Folders of other packages, whose files cannot be in this one.
const OTHER_PACKAGES: [&str; 8] = [
    "examples/quickstart/",
    "examples/cudarc/",
    "examples/otlp/",
    "examples/candle-mnist/",
    "examples/candle-transformer/",
    "examples/burn-mnist/",
    "examples/serving/",
    "integrations/",
];

/// Returns the paths that a text in Markdown links to, and for each whether it is a picture.
fn links(text: &str) -> Vec<(&str, bool)> {
    let starts = text.match_indices("](").map(|(at, _)| at);
    let links = starts.filter_map(|at| {
        let (link, _) = text[at + 2..].split_once([')', '#'])?;
        let opened = text[..at].rfind('[')?;
        Some((link, text[..opened].ends_with('!')))
    });
    links.filter(|(link, _)| !link.is_empty() && !link.starts_with("http")).collect()
}

/// Whether the list `include` of `Cargo.toml` has this file.
fn is_included(path: &str) -> bool {
    let in_folder = |folder: &str| path.strip_prefix(folder).is_some_and(|name| !name.contains('/'));
    path.starts_with("src/")
        || path.starts_with("docs/")
        || in_folder("examples/") && path.ends_with(".rs")
        || path == "benches/README.md"
        || in_folder("") && (path.ends_with(".md") || path.starts_with("LICENSE-"))
}

#[test]
fn the_readme_refers_to_files_of_the_package() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let include = r#"include = ["/src", "/docs", "/examples/*.rs", "/benches/README.md", "/*.md", "/LICENSE-*"]"#;
    assert!(manifest.contains(include), "`is_included` knows another list");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (mut pictures, mut others) = (0, 0);
    for (link, is_picture) in links(&readme) {
        assert!(root.join(link).exists(), "there is no {link}");
        let is_other = OTHER_PACKAGES.iter().any(|folder| format!("{link}/").starts_with(folder));
        assert!(is_included(link) || is_other && !is_picture, "{link} is not in the package");
        *if is_picture { &mut pictures } else { &mut others } += 1;
    }
    assert!(pictures > 3 && others > 10, "{pictures} pictures and {others} other links");
}
