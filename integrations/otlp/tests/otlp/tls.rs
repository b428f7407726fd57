//! Certificates of collectors and clients.

use crate::{
    collector::{Certificates, Collector},
    training::{BOTH, assert_all_arrived, otlp, refused_to_start, train, train_in_vain},
};
use kernspan_otlp::Otlp;
use std::sync::Arc;

#[test]
fn a_certificate_is_checked() {
    for protocol in BOTH {
        let (ours, others) = (Arc::new(Certificates::new()), Certificates::new());
        let collector = Collector::new(protocol, Some(&ours));
        let known = train(otlp(protocol, &collector.address()).certificate(ours.authority()));
        assert_all_arrived(&collector, &known);
        // Without the authority's certificate, and with that of another.
        let to = || otlp(protocol, &collector.address());
        train_in_vain(to, "invalid peer certificate");
        train_in_vain(|| to().certificate(others.authority()), "invalid peer certificate");
        // A collector without TLS.
        let plain = Collector::new(protocol, None);
        train_in_vain(|| otlp(protocol, &plain.address().replace("http:", "https:")), "");
    }
}

#[test]
fn a_client_shows_its_certificate() {
    for protocol in BOTH {
        let ours = Arc::new(Certificates::asking_clients());
        let collector = Collector::new(protocol, Some(&ours));
        let to = || otlp(protocol, &collector.address()).certificate(ours.authority());
        let shown = train(to().client_certificate(ours.client(), ours.client_key()));
        assert_all_arrived(&collector, &shown);
        train_in_vain(to, "");
    }
}

#[test]
fn files_that_are_no_certificates_are_said() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let missing = ours.file("missing");
    for protocol in BOTH {
        let to = || otlp(protocol, "https://localhost:1");
        let said = |otlp: Otlp, words: &str| {
            let said = refused_to_start(otlp);
            assert!(said.contains(words), "{said}");
        };
        said(to().certificate(&missing), "cannot read");
        said(to().certificate(ours.client_key()), "there is no certificate in");
        said(to().client_certificate(ours.client(), &missing), "cannot read");
        said(to().client_certificate(ours.client(), ours.client()), "there is no key in");
        said(to().client_certificate(ours.client(), others.client_key()), "does not match the certificate");
        // Without TLS, the files are not read.
        let collector = Collector::new(protocol, None);
        assert_all_arrived(&collector, &train(otlp(protocol, &collector.address()).certificate(&missing)));
    }
}
