//! Requests of a service: every one of them is counted and timed, whether or not a window records it.
//!
//! A request is a span of a chosen name, from its creation to its close. It may be async and polled on several threads,
//! entered often or never, and closed on another thread. [`ProfilerBuilder::request_on`] chooses the name, or several.
//! [`Profiler::requests`] returns the state so far, and [`Report::requests`] that of the whole run.
//!
//! ```
//! use kernspan::{Profiler, Schedule, serving::RequestKind};
//! # use tracing_subscriber::prelude::*;
//!
//! let (layer, profiler) = Profiler::builder()
//!     .schedule(Schedule::manual()) // Records no window by itself.
//!     .request_on(RequestKind::new("request").by("route"))
//!     .build()?;
//! # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
//! for route in ["/chat", "/chat", "/embed"] {
//!     tracing::info_span!("request", route).in_scope(|| { /* … */ });
//! }
//! let requests = profiler.requests();
//! let kind = requests.kind("request").unwrap();
//! assert_eq!((kind.total.count(), kind.group(&["/chat"]).unwrap().count()), (3, 2));
//! # });
//! println!("{}", profiler.finish()?);
//! # Ok::<(), kernspan::Error>(())
//! ```
//!
//! # Fields
//!
//! Fields of the span, given at its creation or [recorded](tracing::Span::record) before it closes, say more about a
//! request: whether it failed, when it was to start, how many tokens it read. Events inside it report the tokens that
//! it generates. [`convention`](crate::trace::convention) lists them.
//!
//! # Coordinated omission
//!
//! The latency of a request says how long the service worked on it. If the service stalls for a second, requests that
//! arrive meanwhile wait in a queue that no span sees: a load balancer's, a socket's, or that of a load generator which
//! waits for an answer before it sends the next request. Percentiles of latencies then leave out most of the stall.
//! This is called coordinated omission. A request that carries its intended start, such as the time at which a proxy
//! received it, also has a queue time and a response time, which is the sum of both and what the client experiences.
//!
//! The intended start is on the wall clock, since it comes from another process. If it is in the future or more than an
//! hour in the past, one of the clocks was set or is wrong: the request then counts in
//! [`RequestGroup::implausible_starts`] and has no queue time. Latencies themselves do not depend on the wall clock.
//!
//! # Cost
//!
//! A request adds some 170 nanoseconds to its span (`benches/README.md`). Threads share no lock while there are at most
//! 64 of them. A request allocates nothing on its thread once the thread's list and the request's labels are known.
//! Text fields of spans allocate, as in every phase. Spans that are no requests cost a little more while requests are
//! counted, since their names are compared.
//!
//! [`ProfilerBuilder::request_on`]: crate::ProfilerBuilder::request_on
//! [`Profiler::requests`]: crate::Profiler::requests
//! [`Report::requests`]: crate::Report::requests

mod error_budget;
mod latency_histogram;
mod open_request;
mod request_kind;
mod request_labels;
mod request_log;
mod request_recorder;
mod request_shards;
mod request_tally;
mod requests;
mod serving_thread;
mod slo;
mod slow_requests;
mod slow_traces;

pub use self::{
    error_budget::{BurnRate, ServiceLevel},
    latency_histogram::LatencyHistogram,
    request_kind::RequestKind,
    request_log::RequestLog,
    requests::{GeneratedTokens, RequestGpu, RequestGroup, Requests, RequestsOfKind},
    slo::Slo,
    slow_requests::{RecordedSpan, SlowRequest},
};
pub(crate) use self::{
    request_recorder::RequestRecorder,
    serving_thread::{ServingParts, ServingThread},
};
