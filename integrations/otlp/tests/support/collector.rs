//! A collector in this process, over HTTP or gRPC. It keeps all requests, and can be told to misbehave.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

#[path = "collector/certificates.rs"]
mod certificates;
#[path = "collector/grpc.rs"]
mod grpc;
#[path = "collector/http.rs"]
mod http;

pub use self::certificates::Certificates;

use crate::support::eventually;
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    metrics::v1::Metric,
    trace::v1::Span,
};
use std::{
    collections::{BTreeMap, VecDeque},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

/// The way in which a collector treats requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Behaviour {
    /// Takes them.
    Well,
    /// Answers with this status of HTTP, or with the matching one of gRPC.
    Refuse(u16),
    /// The same, with the seconds after which to try again.
    RefuseFor(u16, u64),
    /// Redirects them, with this status of HTTP.
    Redirect(u16, String),
    /// Ends the connection at once.
    Close,
    /// Never answers.
    Silent,
    /// Takes them, after a while.
    Slow(Duration),
    /// Rejects so many spans or points, for a reason.
    TakePart(i64, &'static str),
    /// Answers with a body that cannot be decoded; over gRPC, with a negative count.
    Garbage,
    /// Answers with bytes that are not HTTP.
    Noise,
}

/// A request that arrived, accepted or not.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    /// Names are in lower case.
    pub headers: BTreeMap<String, String>,
    pub content: Content,
    pub taken: bool,
}

#[derive(Clone, Debug)]
pub enum Content {
    Traces(ExportTraceServiceRequest),
    Metrics(ExportMetricsServiceRequest),
}

impl Content {
    pub fn spans(&self) -> Vec<Span> {
        let Self::Traces(request) = self else { return Vec::new() };
        let scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    pub fn metrics(&self) -> Vec<Metric> {
        let Self::Metrics(request) = self else { return Vec::new() };
        let scopes = request.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
        scopes.flat_map(|scope| scope.metrics.clone()).collect()
    }
}

/// A collector. It ends when it is dropped.
pub struct Collector {
    address: SocketAddr,
    certificates: Option<Arc<Certificates>>,
    protocol: Protocol,
    kept: Kept,
    server: Option<Server>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    Grpc,
}

enum Server {
    Http(http::Server),
    Grpc(grpc::Server),
}

impl Collector {
    pub fn http() -> Self {
        Self::new(Protocol::Http, None)
    }

    pub fn grpc() -> Self {
        Self::new(Protocol::Grpc, None)
    }

    pub fn new(protocol: Protocol, certificates: Option<&Arc<Certificates>>) -> Self {
        let listener = listen(SocketAddr::from((an_address(), 0)));
        let mut collector = Self {
            address: listener.local_addr().unwrap(),
            certificates: certificates.map(Arc::clone),
            protocol,
            kept: Kept::default(),
            server: None,
        };
        collector.serve(listener);
        collector
    }

    fn serve(&mut self, listener: TcpListener) {
        let (certificates, kept) = (self.certificates.clone(), self.kept.clone());
        self.server = Some(match self.protocol {
            Protocol::Http => Server::Http(http::Server::start(listener, certificates, kept)),
            Protocol::Grpc => Server::Grpc(grpc::Server::start(listener, certificates, kept)),
        });
    }

    /// The address, such as `http://127.0.0.1:4318`.
    pub fn address(&self) -> String {
        format!("http{}://{}", if self.certificates.is_some() { "s" } else { "" }, self.address)
    }

    /// Sets the usual behaviour.
    pub fn behave(&self, behaviour: Behaviour) {
        self.kept.lock().usual = behaviour;
    }

    /// Adds a behaviour for one request, before the usual one.
    pub fn at_first(&self, behaviour: Behaviour) {
        self.kept.lock().at_first.push_back(behaviour);
    }

    /// Stops listening, and ends all connections.
    pub fn go(&mut self) {
        self.server = None;
    }

    /// Listens at the address of a collector that is gone, and closes the first connection: then a client has tried in
    /// vain.
    pub fn hang_up(&self) {
        assert!(self.server.is_none(), "it has not gone");
        let listener = listen(self.address);
        listener.set_nonblocking(true).unwrap();
        eventually("somebody who connects", || listener.accept().ok());
    }

    /// Listens again, at the same address.
    pub fn come_back(&mut self) {
        self.serve(listen(self.address));
    }

    /// The spans that were taken.
    pub fn spans(&self) -> Vec<Span> {
        self.taken().flat_map(|request| request.content.spans()).collect()
    }

    /// The metrics that were taken, as often as they came.
    pub fn metrics(&self) -> Vec<Metric> {
        self.taken().flat_map(|request| request.content.metrics()).collect()
    }

    fn taken(&self) -> impl Iterator<Item = Request> {
        self.requests().into_iter().filter(|request| request.taken)
    }

    /// How many requests for traces arrived.
    pub fn asked(&self) -> usize {
        self.kept.lock().requests.iter().filter(|request| matches!(request.content, Content::Traces(_))).count()
    }

    /// All that arrived.
    pub fn requests(&self) -> Vec<Request> {
        self.kept.lock().requests.clone()
    }
}

/// An address at which nothing listens.
pub fn nowhere() -> String {
    let listener = listen(SocketAddr::from((an_address(), 0)));
    format!("http://{}", listener.local_addr().unwrap())
}

/// An address of this machine that nobody else has, so that a port is still free after its collector has gone.
fn an_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    if !cfg!(target_os = "linux") {
        return Ipv4Addr::LOCALHOST;
    }
    let [high, low] = (process::id() as u16).to_be_bytes();
    Ipv4Addr::new(127, high | 1, low, NEXT.fetch_add(1, Ordering::Relaxed).max(1))
}

fn listen(address: SocketAddr) -> TcpListener {
    TcpListener::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"))
}

/// The state that a collector shares with its servers.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Told>>);

struct Told {
    usual: Behaviour,
    at_first: VecDeque<Behaviour>,
    requests: Vec<Request>,
}

impl Default for Told {
    fn default() -> Self {
        Self { usual: Behaviour::Well, at_first: VecDeque::new(), requests: Vec::new() }
    }
}

impl Kept {
    fn lock(&self) -> std::sync::MutexGuard<'_, Told> {
        self.0.lock().unwrap()
    }

    /// The behaviour for a new connection; `None` if it depends on the request.
    fn greet(&self) -> Option<Behaviour> {
        let at_once = |behaviour: &Behaviour| matches!(behaviour, Behaviour::Close | Behaviour::Noise);
        let mut told = self.lock();
        match told.at_first.front() {
            Some(first) if at_once(first) => told.at_first.pop_front(),
            Some(_) => None,
            None => Some(told.usual.clone()).filter(at_once),
        }
    }

    /// Keeps a request, and returns the behaviour for it.
    fn note(&self, path: &str, headers: BTreeMap<String, String>, content: Content) -> Behaviour {
        let mut told = self.lock();
        let behaviour = told.at_first.pop_front().unwrap_or_else(|| told.usual.clone());
        let taken =
            matches!(behaviour, Behaviour::Well | Behaviour::Slow(_) | Behaviour::TakePart(..) | Behaviour::Garbage);
        told.requests.push(Request { path: path.to_owned(), headers, content, taken });
        behaviour
    }
}
