use crate::{
    protocol::Protocol,
    secret::{Headers, Url},
};
use std::{path::PathBuf, time::Duration};

/// Where and how the requests of one signal are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) protocol: Protocol,
    pub(crate) url: Url,
    pub(crate) headers: Headers,
    pub(crate) timeout: Duration,
    pub(crate) gzip: bool,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) client_certificate: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
}

impl Endpoint {
    /// The sender's name, for the collector's logs.
    pub(crate) const USER_AGENT: &str = concat!("OTel-OTLP-Exporter-Rust-kernspan/", env!("CARGO_PKG_VERSION"));
}
