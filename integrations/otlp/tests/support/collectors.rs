//! Real programs that take OTLP: Jaeger, which keeps traces, and can be an OpenTelemetry Collector, too; and
//! Prometheus, which keeps metrics.
//!
//! `tests/collectors/build.sh` builds them, which takes minutes and Go. So tests with them are ignored unless asked
//! for; without Go, they fail.

use super::{
    server::{Answer, Server, encoded, get},
    spans::{Span, spans},
};
use serde_json::Value as Json;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Builds one of the programs, if need be, and returns its path.
fn program(name: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/collectors/build.sh");
    // The output of the build is shown.
    let output = Command::new(script).arg(name).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "no {name}: {}", output.status);
    String::from_utf8(output.stdout).unwrap().trim().into()
}

/// Jaeger, with storage in memory. A span can be read as soon as the request that it came with is answered.
pub struct Jaeger {
    server: Server,
    pub http_port: u16,
    pub grpc_port: u16,
    query_port: u16,
}

impl Jaeger {
    /// The most traces that Jaeger keeps. It drops the oldest silently, and no test sends as many.
    const MOST_TRACES: usize = 100_000;

    pub fn start() -> Self {
        Self::start_with("", "")
    }

    /// Starts one that has no memory, and answers every request with 503 or `UNAVAILABLE`: try again later.
    pub fn refusing() -> Self {
        Self::start_with("memory_limiter", "{ memory_limiter: { check_interval: 10ms, limit_mib: 1 } }")
    }

    fn start_with(processors: &str, settings: &str) -> Self {
        let ready = (2, "/api/v3/services");
        let (server, [http_port, grpc_port, query_port, _]) =
            Server::start("Jaeger", &program("jaeger"), ready, |folder, [http, grpc, query, query_grpc]| {
                let most = Self::MOST_TRACES;
                // Without batches, which would be answered before they are stored.
                let config = format!(
                    "
receivers:
  otlp:
    protocols: {{ http: {{ endpoint: '127.0.0.1:{http}' }}, grpc: {{ endpoint: '127.0.0.1:{grpc}' }} }}
processors: {settings}
exporters: {{ jaeger_storage_exporter: {{ trace_storage: memory }} }}
extensions:
  jaeger_storage: {{ backends: {{ memory: {{ memory: {{ max_traces: {most} }} }} }} }}
  jaeger_query:
    storage: {{ traces: memory }}
    http: {{ endpoint: '127.0.0.1:{query}' }}
    grpc: {{ endpoint: '127.0.0.1:{query_grpc}' }}
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines: {{ traces: {{ receivers: [otlp], processors: [{processors}], exporters: [jaeger_storage_exporter] }} }}
  telemetry: {{ metrics: {{ level: none }} }}
"
                );
                vec!["--config".to_owned(), written(folder, &config)]
            });
        Self { server, http_port, grpc_port, query_port }
    }

    /// The address for `http/protobuf`.
    pub fn http(&self) -> String {
        format!("http://127.0.0.1:{}", self.http_port)
    }

    /// The address for `grpc`.
    pub fn grpc(&self) -> String {
        format!("http://127.0.0.1:{}", self.grpc_port)
    }

    pub fn services(&self) -> BTreeSet<String> {
        let answer = self.ask("/api/v3/services").json();
        // An empty list is left out.
        let services = answer["services"].as_array().into_iter().flatten();
        services.map(|service| service.as_str().unwrap().to_owned()).collect()
    }

    /// The names of a service's spans, each once.
    pub fn operations(&self, service: &str) -> BTreeSet<String> {
        let path = format!("/api/v3/operations?service={}", encoded(service));
        let answer = self.ask(&path).json();
        let operations = answer["operations"].as_array().into_iter().flatten();
        operations.map(|operation| operation["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The spans of every trace that a service has a part in, by trace.
    pub fn traces(&self, service: &str) -> BTreeMap<String, Vec<Span>> {
        let path = format!(
            "/api/v3/traces?query.service_name={}&query.start_time_min=1970-01-01T00:00:00Z\
             &query.start_time_max=2200-01-01T00:00:00Z&query.num_traces={}&query.raw_traces=true",
            encoded(service),
            Self::MOST_TRACES
        );
        let mut traces = BTreeMap::<_, Vec<_>>::new();
        for span in self.spans(&path) {
            traces.entry(span.trace_id.clone()).or_default().push(span);
        }
        traces
    }

    /// The spans of a trace, given its id as 32 hexadecimal digits; none if there is no such trace.
    pub fn trace(&self, id: &str) -> Vec<Span> {
        // Raw: or else times are corrected, and what Jaeger takes for a duplicate is dropped.
        self.spans(&format!("/api/v3/traces/{id}?raw_traces=true"))
    }

    /// Queries the API that has spans as they were sent; the older `/api/traces` has only microseconds.
    fn spans(&self, path: &str) -> Vec<Span> {
        let answer = self.ask(path);
        if answer.status == 404 { Vec::new() } else { spans(&answer.json()["result"]) }
    }

    fn ask(&self, path: &str) -> Answer {
        get(self.query_port, path).unwrap()
    }
}

/// Prometheus, which takes OTLP itself, set up as `examples/otlp` says. A number can be asked for as soon as the
/// request that it came with is answered.
pub struct Prometheus {
    server: Server,
    pub port: u16,
}

/// A series with its latest number.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub labels: Labels,
    pub value: f64,
}

/// The labels of a series, with its name as `__name__`.
pub type Labels = BTreeMap<String, String>;

impl Prometheus {
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// Starts one that also scrapes the metrics of the Collector, at this port, many times a second.
    pub fn scraping(port: u16) -> Self {
        Self::start_with(&format!(
            "scrape_configs: [{{ job_name: collector, honor_labels: true, scrape_interval: 200ms, \
             scrape_timeout: 200ms, static_configs: [{{ targets: ['127.0.0.1:{port}'] }}] }}]"
        ))
    }

    fn start_with(scraped: &str) -> Self {
        let config = fs::read_to_string(example("prometheus.yaml")).unwrap() + scraped;
        let (server, [port]) =
            Server::start("Prometheus", &program("prometheus"), (0, "/-/ready"), |folder, [port]| {
                vec![
                    format!("--config.file={}", written(folder, &config)),
                    format!("--storage.tsdb.path={}", folder.join("data").display()),
                    format!("--web.listen-address=127.0.0.1:{port}"),
                    "--web.enable-otlp-receiver".to_owned(),
                    "--enable-feature=exemplar-storage".to_owned(),
                ]
            });
        Self { server, port }
    }

    /// The address for `http/protobuf`.
    pub fn http(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, Self::OTLP)
    }

    /// The path that OTLP is taken at, before `/v1/metrics`.
    pub const OTLP: &str = "/api/v1/otlp";

    /// The result of a PromQL query now. Values older than five minutes are left out.
    pub fn query(&self, promql: &str) -> Vec<Sample> {
        self.samples(promql, &[("query", promql)])
    }

    /// The result of a PromQL query at a time, in seconds since 1970.
    pub fn query_at(&self, promql: &str, seconds: u64) -> Vec<Sample> {
        self.samples(promql, &[("query", promql), ("time", &seconds.to_string())])
    }

    fn samples(&self, promql: &str, parameters: &[(&str, &str)]) -> Vec<Sample> {
        let data = self.ask("query", parameters);
        assert_eq!(data["resultType"], "vector", "{promql}");
        let sample = |sample: &Json| Sample {
            labels: labels(&sample["metric"]),
            // A text, as it may not be finite.
            value: sample["value"][1].as_str().unwrap().parse().unwrap(),
        };
        list(&data["result"]).iter().map(sample).collect()
    }

    /// The series that a selector gives, of all that there are.
    pub fn series(&self, selector: &str) -> Vec<Labels> {
        list(&self.ask("series", &[("match[]", selector)])).iter().map(labels).collect()
    }

    /// The same, of those that had a number in the minutes before a moment.
    pub fn series_at(&self, selector: &str, seconds: u64) -> Vec<Labels> {
        let (start, end) = ((seconds - 300).to_string(), seconds.to_string());
        list(&self.ask("series", &[("match[]", selector), ("start", &start), ("end", &end)]))
            .iter()
            .map(labels)
            .collect()
    }

    /// The exemplars of the series that a query is about: their labels, `trace_id` and `span_id`, and their values.
    pub fn exemplars(&self, promql: &str) -> Vec<Sample> {
        let range = [("query", promql), ("start", "0"), ("end", "4102444800")];
        let series = self.ask("query_exemplars", &range);
        let exemplar = |exemplar: &Json| Sample {
            labels: labels(&exemplar["labels"]),
            value: exemplar["value"].as_str().unwrap().parse().unwrap(),
        };
        list(&series).iter().flat_map(|series| list(&series["exemplars"])).map(exemplar).collect()
    }

    fn ask(&self, what: &str, parameters: &[(&str, &str)]) -> Json {
        let parameter = |(name, value): &(&str, &str)| format!("{}={}", encoded(name), encoded(value));
        let parameters: Vec<_> = parameters.iter().map(parameter).collect();
        let mut answer = get(self.port, &format!("/api/v1/{what}?{}", parameters.join("&"))).unwrap().json();
        answer["data"].take()
    }
}

/// The Collector of `examples/otlp`. Jaeger's program is one with other parts in it.
pub struct Collector {
    server: Server,
    pub http_port: u16,
    pub grpc_port: u16,
    /// The port at which Prometheus can scrape metrics.
    pub scraped_port: u16,
}

impl Collector {
    /// Starts one that passes everything on.
    pub fn start(jaeger: &Jaeger, prometheus: &Prometheus) -> Self {
        Self::start_with(jaeger, &prometheus.http(), "otlphttp/prometheus")
    }

    /// Starts one that passes traces on, and keeps metrics until they are scraped.
    pub fn scraped(jaeger: &Jaeger) -> Self {
        Self::start_with(jaeger, "http://127.0.0.1:9", "prometheus")
    }

    fn start_with(jaeger: &Jaeger, prometheus: &str, metrics: &str) -> Self {
        let jaeger = jaeger.grpc_port;
        let ready = (2, "/");
        let (server, [http_port, grpc_port, _, scraped_port]) =
            Server::start("Collector", &program("jaeger"), ready, |folder, [http, grpc, health, scraped]| {
                // Only the addresses differ from the example.
                let addresses = format!(
                    "
receivers:
  otlp:
    protocols: {{ http: {{ endpoint: '127.0.0.1:{http}' }}, grpc: {{ endpoint: '127.0.0.1:{grpc}' }} }}
exporters:
  otlp/jaeger: {{ endpoint: '127.0.0.1:{jaeger}' }}
  otlphttp/prometheus: {{ endpoint: '{prometheus}' }}
  prometheus: {{ endpoint: '127.0.0.1:{scraped}' }}
extensions: {{ healthcheckv2: {{ use_v2: true, http: {{ endpoint: '127.0.0.1:{health}', status: {{ path: / }} }} }} }}
service:
  extensions: [healthcheckv2]
  pipelines: {{ metrics: {{ exporters: [{metrics}] }} }}
  telemetry: {{ metrics: {{ level: none }} }}
"
                );
                ["--config", &example("collector.yaml"), "--config", &written(folder, &addresses)]
                    .map(str::to_owned)
                    .into()
            });
        Self { server, http_port, grpc_port, scraped_port }
    }
}

macro_rules! servers {
    ($($program:ident)*) => {$(
        impl Deref for $program {
            type Target = Server;

            fn deref(&self) -> &Server {
                &self.server
            }
        }

        impl DerefMut for $program {
            fn deref_mut(&mut self) -> &mut Server {
                &mut self.server
            }
        }
    )*};
}

servers! { Jaeger Prometheus Collector }

/// The path of a file among the examples.
fn example(name: &str) -> String {
    format!("{}/../../examples/otlp/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The path of a new file that says this.
fn written(folder: &Path, config: &str) -> String {
    let file = folder.join("config.yaml");
    fs::write(&file, config).unwrap();
    file.into_os_string().into_string().unwrap()
}

fn list(list: &Json) -> &[Json] {
    list.as_array().unwrap_or_else(|| panic!("no list: {list}"))
}

fn labels(labels: &Json) -> Labels {
    let label = |(name, value): (&String, &Json)| (name.clone(), value.as_str().unwrap().to_owned());
    labels.as_object().unwrap().iter().map(label).collect()
}
