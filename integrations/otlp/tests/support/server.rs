//! Programs that others wrote and that listen on the loopback: started, asked, hindered, killed.

use super::{PATIENCE, eventually};
use serde_json::Value as Json;
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A program that listens, which is killed when this is dropped. What it logged is shown if the test failed.
pub struct Server {
    name: &'static str,
    command: Command,
    child: Option<Child>,
    /// A port that it answers HTTP at, and what is there once all of it listens.
    ready: (u16, &'static str),
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts `program` with the arguments that `prepare` makes of its folder and of ports that nobody listens at. It
    /// is ready once there is something at the path `ready` of the port `ports[asked]`.
    pub fn start<const PORTS: usize>(
        name: &'static str,
        program: &Path,
        (asked, ready): (usize, &'static str),
        prepare: impl Fn(&Path, [u16; PORTS]) -> Vec<String>,
    ) -> (Self, [u16; PORTS]) {
        for _ in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let ports = free_ports();
            let mut command = Command::new(program);
            command.args(prepare(folder.path(), ports)).current_dir(folder.path()).stdin(Stdio::null());
            let mut server = Self { name, command, child: None, ready: (ports[asked], ready), folder };
            server.spawn();
            if server.wait_until_ready() {
                return (server, ports);
            }
            // Between this and that, somebody else may have taken a port.
            assert!(server.log().contains("address already in use"), "{name} does not start:\n{}", server.log());
        }
        panic!("no free ports for {name}");
    }

    fn spawn(&mut self) {
        let log = File::options().create(true).append(true).open(self.log_file()).unwrap();
        self.command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(self.command.spawn().unwrap());
    }

    /// Whether it is; not if it ended.
    fn wait_until_ready(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        let (port, path) = self.ready;
        loop {
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            if get(port, path).is_ok_and(|answer| answer.status == 200) {
                return true;
            }
            assert!(Instant::now() < until, "{} is never ready:\n{}", self.name, self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it, as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            child.wait().unwrap();
        }
    }

    /// Starts it once more, at the same ports. It was killed before.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "{} runs", self.name);
        self.spawn();
        assert!(self.wait_until_ready(), "{} does not start again:\n{}", self.name, self.log());
    }

    /// Lets it do nothing from now on: who connects is let in by the system, and hears nothing.
    pub fn pause(&self) {
        self.signal("-STOP");
        // Each of its threads stops when it is next looked at.
        let threads = format!("/proc/{}/task", self.child.as_ref().expect("it runs").id());
        let is_stopped = |thread: fs::DirEntry| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        eventually("a stop of all threads", || {
            fs::read_dir(&threads).unwrap().all(|thread| is_stopped(thread.unwrap())).then_some(())
        });
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.child.as_ref().expect("it runs").id();
        assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
    }

    /// The output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("\n{} said:\n{}", self.name, self.log());
        }
    }
}

/// Ports of the loopback that nobody listens at now.
pub fn free_ports<const PORTS: usize>() -> [u16; PORTS] {
    // All are taken at once, so that they differ.
    let taken = [(); PORTS].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    taken.map(|listener| listener.local_addr().unwrap().port())
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    /// The JSON that it is, of a question that went well.
    #[track_caller]
    pub fn json(&self) -> Json {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Asks for a path, which may have a query.
pub fn get(port: u16, path: &str) -> io::Result<Answer> {
    request(port, &format!("GET {path} HTTP/1.0\r\n"), &[])
}

/// Sends JSON.
pub fn post(port: u16, path: &str, body: &Json) -> io::Result<Answer> {
    post_bytes(port, path, "application/json", body.to_string().as_bytes())
}

/// Sends anything.
pub fn post_bytes(port: u16, path: &str, kind: &str, body: &[u8]) -> io::Result<Answer> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.0\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n");
    request(port, &head, body)
}

/// HTTP/1.0, in which an answer is not in pieces and ends with the connection.
fn request(port: u16, head: &str, body: &[u8]) -> io::Result<Answer> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{head}Host: 127.0.0.1:{port}\r\n\r\n").as_bytes())?;
    stream.write_all(body)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let parsed = || {
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, body: body.to_owned() })
    };
    parsed().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, answer.clone()))
}

/// Text as a part of a query.
pub fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
