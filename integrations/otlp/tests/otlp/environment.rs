//! Settings of environment variables.

use crate::{
    collector::{Certificates, Collector, Protocol},
    support::{PATIENCE, child},
    training::train,
};
use kernspan_otlp::Otlp;
use std::{env, ffi::OsStr, sync::Arc};

/// The program of the test below.
#[test]
fn train_as_the_environment_says() {
    if env::var_os("KERNSPAN_TEST_TRAINS").is_some() {
        train(Otlp::from_env().metrics(false).answer_within(PATIENCE).finish_within(PATIENCE));
    }
}

#[test]
fn the_environment_says_where_to() {
    for (protocol, name) in [(Protocol::Http, "http/protobuf"), (Protocol::Grpc, "grpc")] {
        let ours = Arc::new(Certificates::asking_clients());
        let collector = Collector::new(protocol, Some(&ours));
        let (ca, client, key) = (ours.authority(), ours.client(), ours.client_key());
        let address = collector.address();
        let variables: [(&str, &OsStr); 9] = [
            ("KERNSPAN_TEST_TRAINS", "1".as_ref()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", name.as_ref()),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_ref()),
            ("OTEL_EXPORTER_OTLP_HEADERS", "X-Token=two%20words,x-more=1".as_ref()),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip".as_ref()),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.as_ref()),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", client.as_ref()),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", key.as_ref()),
            // Nobody listens there, but no proxy is used on the way to this machine.
            ("http_proxy", "http://127.0.0.1:1".as_ref()),
        ];
        child::run("environment::train_as_the_environment_says", &variables);
        assert!(!collector.spans().is_empty());
        for request in collector.requests() {
            assert_eq!([&*request.headers["x-token"], &*request.headers["x-more"]], ["two words", "1"]);
            let encoding = if protocol == Protocol::Http { "content-encoding" } else { "grpc-encoding" };
            assert_eq!(request.headers[encoding], "gzip");
        }
    }
}
