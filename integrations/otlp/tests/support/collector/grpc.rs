//! A collector over gRPC, from OpenTelemetry's generated code.

use super::{Behaviour, Certificates, Content, Kept};
use opentelemetry_proto::tonic::collector::{
    metrics::v1::{
        ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
        metrics_service_server::{MetricsService, MetricsServiceServer},
    },
    trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
};
use std::{
    collections::BTreeMap,
    fs, io,
    net::TcpListener,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{
    net::TcpStream,
    runtime::{Builder, Runtime},
};
use tonic::{
    Code, Request, Response, Status,
    codec::CompressionEncoding,
    codegen::tokio_stream::Stream,
    metadata::{KeyAndValueRef, MetadataMap},
    transport::{Certificate, Identity, Server as Tonic, ServerTlsConfig},
};

pub(super) struct Server(Option<Runtime>);

impl Server {
    pub(super) fn start(listener: TcpListener, certificates: Option<Arc<Certificates>>, kept: Kept) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut server = Tonic::builder();
        if let Some(certificates) = certificates {
            let [certificate, key] = certificates.server(address.ip());
            let mut tls = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
            if certificates.ask_clients {
                tls = tls.client_ca_root(Certificate::from_pem(fs::read(certificates.authority()).unwrap()));
            }
            server = server.tls_config(tls).unwrap();
        }
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let traces = TraceServiceServer::new(kept.clone()).max_decoding_message_size(usize::MAX);
            let metrics = MetricsServiceServer::new(kept.clone()).max_decoding_message_size(usize::MAX);
            server
                .add_service(traces.accept_compressed(CompressionEncoding::Gzip))
                .add_service(metrics.accept_compressed(CompressionEncoding::Gzip))
                .serve_with_incoming(Incoming { listener, kept })
                .await
                .unwrap();
        });
        Self(Some(runtime))
    }
}

impl Drop for Server {
    /// Ends the server and its connections before it returns. The caller may be in a runtime of its own.
    fn drop(&mut self) {
        let runtime = self.0.take().unwrap();
        std::thread::spawn(move || drop(runtime)).join().unwrap();
    }
}

/// The connections that are not ended at once.
struct Incoming {
    listener: tokio::net::TcpListener,
    kept: Kept,
}

impl Stream for Incoming {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Poll::Ready(accepted) = self.listener.poll_accept(context) else { return Poll::Pending };
            let (stream, _) = accepted?;
            match self.kept.greet() {
                None => return Poll::Ready(Some(Ok(stream))),
                Some(Behaviour::Noise) => drop(stream.try_write(b"what do you want?\r\n\r\n")),
                Some(_) => {}
            }
        }
    }
}

/// Behaves as asked. Returns how many items are rejected, and why.
async fn behave(behaviour: Behaviour) -> Result<Option<(i64, String)>, Status> {
    match behaviour {
        Behaviour::Well => Ok(None),
        Behaviour::Slow(pause) => {
            tokio::time::sleep(pause).await;
            Ok(None)
        }
        Behaviour::TakePart(rejected, why) => Ok(Some((rejected, why.to_owned()))),
        // An invalid number.
        Behaviour::Garbage => Ok(Some((i64::MIN, String::new()))),
        Behaviour::Refuse(status) => Err(Status::new(code(status), "no, no.")),
        Behaviour::RefuseFor(status, seconds) => {
            let delay = [&[8][..], &varint(seconds)].concat();
            let info = field(10, &delay);
            let any = [field(10, b"type.googleapis.com/google.rpc.RetryInfo"), field(18, &info)].concat();
            Err(Status::with_details(code(status), "not now", field(26, &any).into()))
        }
        Behaviour::Redirect(..) => Err(Status::new(Code::Unimplemented, "gRPC sends nobody elsewhere")),
        Behaviour::Close | Behaviour::Noise => Err(Status::new(Code::Unavailable, "the connection is to be ended")),
        Behaviour::Silent => std::future::pending().await,
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of protobuf's, with its length.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[tag][..], &varint(bytes.len() as u64), bytes].concat()
}

fn code(status: u16) -> Code {
    match status {
        400 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        404 => Code::Unimplemented,
        413 | 429 => Code::ResourceExhausted,
        503 => Code::Unavailable,
        _ => Code::Internal,
    }
}

fn headers(metadata: &MetadataMap) -> BTreeMap<String, String> {
    let texts = metadata.iter().filter_map(|entry| match entry {
        KeyAndValueRef::Ascii(name, value) => Some((name.to_string(), value.to_str().unwrap().to_owned())),
        KeyAndValueRef::Binary(..) => None,
    });
    texts.collect()
}

#[tonic::async_trait]
impl TraceService for Kept {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = headers(request.metadata());
        let behaviour = self.note("TraceService/Export", headers, Content::Traces(request.into_inner()));
        let partial = behave(behaviour).await?;
        let partial =
            partial.map(|(rejected_spans, error_message)| ExportTracePartialSuccess { rejected_spans, error_message });
        Ok(Response::new(ExportTraceServiceResponse { partial_success: partial }))
    }
}

#[tonic::async_trait]
impl MetricsService for Kept {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let headers = headers(request.metadata());
        let behaviour = self.note("MetricsService/Export", headers, Content::Metrics(request.into_inner()));
        let partial = behave(behaviour).await?;
        let partial = partial.map(|(rejected_data_points, error_message)| ExportMetricsPartialSuccess {
            rejected_data_points,
            error_message,
        });
        Ok(Response::new(ExportMetricsServiceResponse { partial_success: partial }))
    }
}
