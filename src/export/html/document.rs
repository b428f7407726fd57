//! The file of a page: a JSON document, and the styles and scripts that draw it.

use std::fmt;

/// A page for browsers that is made of sections, as [`HtmlReport`](super::HtmlReport) is. `Display` writes the file.
///
/// It is for programs that show other things in the same way, as the command `kernspan diff` does. The document is a
/// JSON object with the members `title`, `made`, `names` (texts that sections refer to by their index) and `sections`,
/// each with an `id`, a `title`, a `kind` and what the kind needs. Kinds may change from version to version.
///
/// ```
/// use kernspan::export::HtmlDocument;
///
/// let section = r#"{"id": "hello", "title": "Hello", "kind": "tiles", "items": [["step", "1.5ms", "median"]]}"#;
/// let json = format!(r#"{{"title": "Steps", "made": "By hand.", "names": [], "sections": [{section}]}}"#);
/// let page = HtmlDocument::new("Steps", &json, "step: 1.5ms").to_string();
/// assert!(page.starts_with("<!doctype html>"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HtmlDocument<'a> {
    title: &'a str,
    json: &'a str,
    text: &'a str,
}

/// The scripts of the page, in the order in which they use each other.
const SCRIPTS: [&str; 10] = [
    include_str!("assets/units.js"),
    include_str!("assets/dom.js"),
    include_str!("assets/answer.js"),
    include_str!("assets/table.js"),
    include_str!("assets/charts.js"),
    include_str!("assets/flame.js"),
    include_str!("assets/timeline_data.js"),
    include_str!("assets/timeline_draw.js"),
    include_str!("assets/timeline.js"),
    include_str!("assets/main.js"),
];

impl<'a> HtmlDocument<'a> {
    /// Makes a page of a title, a JSON document, and a text for browsers that run no scripts.
    pub fn new(title: &'a str, json: &'a str, text: &'a str) -> Self {
        Self { title, json, text }
    }
}

impl fmt::Display for HtmlDocument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
        f.write_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")?;
        // Nothing is ever loaded from anywhere.
        f.write_str("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ")?;
        f.write_str("style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n")?;
        writeln!(f, "<title>{}</title>", escape(self.title))?;
        writeln!(f, "<style>\n{}</style>\n</head>\n<body>", include_str!("assets/page.css"))?;
        let text = escape(self.text);
        writeln!(f, "<noscript>\n<p>This page needs scripts. The report as text:</p>\n<pre>{text}</pre>\n</noscript>")?;
        f.write_str("<script type=\"application/json\" id=\"data\">\n")?;
        // A `<` is in strings only, where it can be written as a number: no text ends the element.
        let mut parts = self.json.split('<');
        f.write_str(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| write!(f, "\\u003c{part}"))?;
        f.write_str("\n</script>\n<script>\n\"use strict\";\n(() => {\n")?;
        SCRIPTS.iter().try_for_each(|script| f.write_str(script))?;
        f.write_str("})();\n</script>\n</body>\n</html>\n")
    }
}

/// Returns text as HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
