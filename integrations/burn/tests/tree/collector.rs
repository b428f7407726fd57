//! A collector that keeps the requests that OTLP over HTTP sends to it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// Listens on the loopback until the process ends.
pub struct Collector {
    address: String,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Collector {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, kept) = (stream.unwrap(), Arc::clone(&kept));
                thread::spawn(move || {
                    while let Some(request) = answer(&stream) {
                        kept.lock().unwrap().push(request);
                    }
                });
            }
        });
        Self { address, requests }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// The bodies of all requests so far.
    pub fn requests(&self) -> Vec<Vec<u8>> {
        self.requests.lock().unwrap().clone()
    }
}

/// Reads a request, and answers that all is well. Returns its body, or `None` when the connection has ended.
fn answer(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n").ok()?;
    Some(body)
}
