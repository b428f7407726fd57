//! The dashboard of `examples/otlp`.

use serde_json::Value as Json;

/// Returns the dashboard.
pub fn dashboard() -> Json {
    serde_json::from_str(include_str!("../../../../examples/otlp/grafana.json")).unwrap()
}

/// Returns a query of the dashboard, with its variables replaced.
pub fn chosen(query: &str, service: &str) -> String {
    let chosen = [("$service", service), ("$rank", "0"), ("$__rate_interval", "1m")];
    let query = chosen.iter().fold(query.to_owned(), |query, (name, value)| query.replace(name, value));
    assert!(!query.contains('$'), "what is chosen in {query}?");
    query
}

/// Returns the queries about a service, after the titles of their panels.
pub fn queries(service: &str) -> Vec<(String, String)> {
    let dashboard = dashboard();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(|target| (panel["title"].as_str().unwrap(), target["expr"].as_str().unwrap()))
    });
    targets.map(|(title, query)| (title.to_owned(), chosen(query, service))).collect()
}
