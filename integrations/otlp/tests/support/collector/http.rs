//! A collector over HTTP.

use super::{Behaviour, Certificates, Content, Kept};
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::{
    metrics::v1::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse},
    trace::v1::{ExportTracePartialSuccess, ExportTraceServiceResponse},
};
use prost::Message;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

pub(super) struct Server {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(listener: TcpListener, certificates: Option<Arc<Certificates>>, kept: Kept) -> Self {
        let address = listener.local_addr().unwrap();
        let (over, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let tls = certificates.map(|certificates| config(&certificates, address));
        let (is_over, connections) = (Arc::clone(&over), Arc::clone(&open));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let stream = stream.unwrap();
                connections.lock().unwrap().push(stream.try_clone().unwrap());
                let (kept, tls) = (kept.clone(), tls.clone());
                thread::spawn(move || {
                    // A client may go at any time.
                    let _ = converse(stream, tls, &kept);
                });
            }
        });
        Self { address, over, open, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the thread, which sees that it is over.
        let _ = TcpStream::connect(self.address);
        self.thread.take().unwrap().join().unwrap();
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn config(certificates: &Certificates, address: SocketAddr) -> Arc<ServerConfig> {
    let [certificate, key] = certificates.server(address.ip());
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = if certificates.ask_clients {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificates.authority()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn converse(stream: TcpStream, tls: Option<Arc<ServerConfig>>, kept: &Kept) -> io::Result<()> {
    let raw = stream.try_clone()?;
    let end = || raw.shutdown(Shutdown::Both);
    match kept.greet() {
        Some(Behaviour::Close) => return end(),
        Some(_) => {
            (&stream).write_all(b"\x15\x03 what do you want?\r\n\r\n")?;
            return end();
        }
        None => {}
    }
    let stream: Box<dyn Stream> = match tls {
        Some(config) => Box::new(StreamOwned::new(ServerConnection::new(config).unwrap(), stream)),
        None => Box::new(stream),
    };
    let mut stream = BufReader::new(stream);
    while let Some(Received { path, headers, content }) = read(&mut stream)? {
        let traces = matches!(content, Content::Traces(_));
        let behaviour = kept.note(&path, headers, content);
        let (status, more, body) = match behaviour {
            Behaviour::Well => (200, String::new(), Vec::new()),
            Behaviour::Slow(pause) => {
                thread::sleep(pause);
                (200, String::new(), Vec::new())
            }
            Behaviour::TakePart(rejected, why) => (200, String::new(), partial(traces, rejected, why)),
            Behaviour::Garbage => (200, String::new(), b"\xff\xffwhat?".to_vec()),
            // A `google.rpc.Status`, with a message.
            Behaviour::Refuse(status) => (status, String::new(), b"\x12\x07no, no.".to_vec()),
            Behaviour::RefuseFor(status, seconds) => (status, format!("retry-after: {seconds}\r\n"), Vec::new()),
            Behaviour::Redirect(status, to) => (status, format!("location: {to}\r\n"), Vec::new()),
            Behaviour::Close | Behaviour::Noise => return end(),
            Behaviour::Silent => {
                // Until the client goes.
                let _ = stream.fill_buf();
                return end();
            }
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status} so\r\ncontent-length: {length}\r\n{more}\r\n");
        stream.get_mut().write_all(&[head.as_bytes(), &*body].concat())?;
        stream.get_mut().flush()?;
    }
    Ok(())
}

/// A request.
struct Received {
    path: String,
    headers: BTreeMap<String, String>,
    content: Content,
}

/// The next request, if there is one.
fn read(stream: &mut impl BufRead) -> io::Result<Option<Received>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.strip_prefix("POST ").and_then(|rest| rest.split(' ').next()).expect(&line).to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.trim().to_owned()),
            None => break,
        };
    }
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    stream.read_exact(&mut body)?;
    if headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip") {
        let packed = std::mem::take(&mut body);
        GzDecoder::new(&*packed).read_to_end(&mut body)?;
    }
    let content = if path.ends_with("metrics") {
        Content::Metrics(Message::decode(&*body).unwrap())
    } else {
        Content::Traces(Message::decode(&*body).unwrap())
    };
    Ok(Some(Received { path, headers, content }))
}

fn partial(traces: bool, rejected: i64, why: &str) -> Vec<u8> {
    let error_message = why.to_owned();
    if traces {
        let partial_success = Some(ExportTracePartialSuccess { rejected_spans: rejected, error_message });
        ExportTraceServiceResponse { partial_success }.encode_to_vec()
    } else {
        let partial_success = Some(ExportMetricsPartialSuccess { rejected_data_points: rejected, error_message });
        ExportMetricsServiceResponse { partial_success }.encode_to_vec()
    }
}
