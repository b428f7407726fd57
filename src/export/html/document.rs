//! The file of a page: a JSON document, and the styles and scripts that draw it.

use std::fmt;

/// An HTML page made of sections, such as [`HtmlReport`](super::HtmlReport). `Display` writes the file.
///
/// It is for programs that show other things in the same way, as the command `kernspan diff` does. The document is a
/// JSON object with the members `title`, `made`, `names` (texts that sections refer to by index), `short` (pairs of
/// such an index and the form in which the name is shown, optional) and `sections`, each with an `id`, a `title`, a
/// `kind` and what the kind needs. Kinds may change between versions.
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

/// The scripts of the page, in dependency order.
const SCRIPTS: [&str; 12] = [
    include_str!("assets/units.js"),
    include_str!("assets/dom.js"),
    include_str!("assets/answer.js"),
    include_str!("assets/table.js"),
    include_str!("assets/charts.js"),
    include_str!("assets/scatter.js"),
    include_str!("assets/heat.js"),
    include_str!("assets/flame.js"),
    include_str!("assets/timeline_data.js"),
    include_str!("assets/timeline_draw.js"),
    include_str!("assets/timeline.js"),
    include_str!("assets/main.js"),
];

impl<'a> HtmlDocument<'a> {
    /// Creates a page from a title, a JSON document, and a text for browsers without scripts.
    pub fn new(title: &'a str, json: &'a str, text: &'a str) -> Self {
        Self { title, json, text }
    }
}

impl fmt::Display for HtmlDocument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
        f.write_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")?;
        // Nothing is ever loaded from the network.
        f.write_str("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ")?;
        f.write_str("style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n")?;
        writeln!(f, "<title>{}</title>", escape(self.title))?;
        writeln!(f, "<style>\n{}</style>\n</head>\n<body>", include_str!("assets/page.css"))?;
        let text = escape(self.text);
        writeln!(f, "<noscript>\n<p>This page needs scripts. The report as text:</p>\n<pre>{text}</pre>\n</noscript>")?;
        f.write_str("<script type=\"application/json\" id=\"data\">\n")?;
        // A `<` occurs only in strings, where it can be escaped: no text ends the element.
        let mut parts = self.json.split('<');
        f.write_str(parts.next().unwrap_or_default())?;
        parts.try_for_each(|part| write!(f, "\\u003c{part}"))?;
        f.write_str("\n</script>\n<script>\n\"use strict\";\n(() => {\n")?;
        SCRIPTS.iter().try_for_each(|script| f.write_str(script))?;
        f.write_str("})();\n</script>\n</body>\n</html>\n")
    }
}

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
