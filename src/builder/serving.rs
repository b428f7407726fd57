//! The settings of requests: which spans they are, their service levels, and their log.

use super::ProfilerBuilder;
use crate::serving::{RequestKind, RequestLog, Slo};

impl ProfilerBuilder {
    /// Counts and times every span of this name as a request, recorded or not: see [`serving`](crate::serving). By
    /// default, none. It can be called for several names; a [`RequestKind`] can also break requests down by fields.
    ///
    /// ```
    /// # use kernspan::Profiler;
    /// let (layer, profiler) = Profiler::builder().request_on("request").build()?;
    /// # drop(layer);
    /// println!("{:?}", profiler.requests().kind("request").map(|requests| requests.in_flight));
    /// # profiler.finish()?;
    /// # Ok::<(), kernspan::Error>(())
    /// ```
    pub fn request_on(mut self, kind: impl Into<RequestKind>) -> Self {
        self.requests.push(kind.into());
        self
    }

    /// Adds a service level objective for the requests of one kind. By default, there is none.
    pub fn slo(mut self, slo: Slo) -> Self {
        self.slos.push(slo);
        self
    }

    /// Appends a line about all requests to a file, every minute or as often as the log says. By default, there is
    /// none.
    pub fn request_log(mut self, log: RequestLog) -> Self {
        self.request_log = Some(log);
        self
    }
}
