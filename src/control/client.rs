//! The client: asks a running program through its socket.

use super::{
    protocol::{Hello, Live, PROTOCOL, Record, RecordProgress, RecordedWindow, Reply, Request, RunStatus, Snapshot},
    sockets::{Listening, is_alive, listening_of, owner, remove_if_dead},
};
use rustix::process::getuid;
use std::{
    fmt,
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// A connection to a running program that [listens](crate::ProfilerBuilder::listen).
///
/// ```no_run
/// use kernspan::control::{Client, protocol::Record};
///
/// # fn main() -> Result<(), kernspan::control::ClientError> {
/// let mut client = Client::of_process(4711)?;
/// println!("in step {}", client.status()?.step);
/// let recorded = client.record(&Record::steps(10), |progress| eprintln!("{progress:?}"))?;
/// println!("{:?}", recorded.files);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
    hello: Hello,
}

/// The reason why a program could not be asked, or what it answered.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no process of this id.
    NoProcess(u32),
    /// The process does not listen.
    NotListening(u32),
    /// The process belongs to another user.
    OtherUser {
        /// The process id.
        pid: u32,
        /// The id of the user.
        uid: u32,
    },
    /// The process has several profilers, each with a socket of its own.
    Several(Vec<PathBuf>),
    /// The program speaks another version of the protocol.
    Version {
        /// The version of the protocol.
        protocol: u32,
        /// The version of kernspan in the program.
        version: String,
    },
    /// The program refused the request, or could not meet it, for this reason.
    Refused(String),
    /// The program answered with something else than was asked for.
    Unexpected(String),
    /// The program has ended, or closed the connection.
    Closed,
    /// The connection failed, or the program does not answer.
    Io(io::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess(pid) => write!(f, "there is no process {pid}"),
            Self::NotListening(pid) => write!(
                f,
                "process {pid} does not listen: build its profiler with `.listen(Listen::default())` (feature \
                 `control`), or start it with KERNSPAN_CONTROL=1 if it uses `Profiler::from_env`"
            ),
            Self::OtherUser { pid, uid } => {
                write!(f, "process {pid} belongs to user {uid}: only that user and root may ask it")
            }
            Self::Several(paths) => {
                write!(f, "the process has {} profilers: choose one of", paths.len())?;
                paths.iter().try_for_each(|path| write!(f, " {}", path.display()))
            }
            Self::Version { protocol, version } => write!(
                f,
                "the program speaks version {protocol} of the protocol (kernspan {version}), and this is version \
                 {PROTOCOL} (kernspan {}): use the same version of kernspan",
                env!("CARGO_PKG_VERSION")
            ),
            Self::Refused(reason) => f.write_str(reason),
            Self::Unexpected(line) => write!(f, "the program answered {line}"),
            Self::Closed => f.write_str("the program has ended or closed the connection"),
            Self::Io(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                f.write_str("the program does not answer: it may be stopped, or it is being debugged")
            }
            Self::Io(error) => write!(f, "cannot ask the program: {error}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // `Display` already includes the cause.
        None
    }
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Client {
    /// The time within which a program answers, unless it is asked for a window. It takes microseconds, or seconds on a
    /// machine without a free core.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// Connects to the only profiler of a process. Root may connect to those of any user.
    ///
    /// # Errors
    ///
    /// If there is no such process, it does not listen, it belongs to another user, or it has several profilers.
    pub fn of_process(pid: u32) -> Result<Self, ClientError> {
        let own = getuid().as_raw();
        let owner = owner(pid).unwrap_or(own);
        if own != 0 && owner != own {
            return Err(ClientError::OtherUser { pid, uid: owner });
        }
        let mut found: Vec<Listening> = listening_of(owner).into_iter().filter(|it| it.pid == pid).collect();
        match (found.pop(), found.len()) {
            (Some(program), 0) => match Self::connect(&program.path) {
                Err(ClientError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    // It belonged to an earlier process of this id.
                    remove_if_dead(&program.path);
                    Err(ClientError::NotListening(pid))
                }
                connected => connected,
            },
            (Some(last), _) => Err(ClientError::Several(found.into_iter().chain([last]).map(|it| it.path).collect())),
            (None, _) if is_alive(pid) => Err(ClientError::NotListening(pid)),
            (None, _) => Err(ClientError::NoProcess(pid)),
        }
    }

    /// Connects to a socket, of those that [`listening`](super::listening) returns.
    ///
    /// # Errors
    ///
    /// If nobody listens on it, or the program refuses the connection or speaks another version of the protocol.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path)?;
        stream.set_write_timeout(Some(Self::PATIENCE))?;
        stream.set_read_timeout(Some(Self::PATIENCE))?;
        let empty = Hello { protocol: PROTOCOL, version: String::new(), pid: 0 };
        let mut client = Self { reader: BufReader::new(stream), hello: empty };
        match client.read()? {
            Reply::Hello(hello) if hello.protocol == PROTOCOL => Ok(Self { hello, ..client }),
            Reply::Hello(Hello { protocol, version, .. }) => Err(ClientError::Version { protocol, version }),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns how the program introduced itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns the state of the run.
    ///
    /// # Errors
    ///
    /// If the program does not answer.
    pub fn status(&mut self) -> Result<RunStatus, ClientError> {
        match self.ask(&Request::Status {})? {
            Reply::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for a window, and waits until it is written. `progress` is called at each change, and every second. If the
    /// client is dropped before the window begins, the request is withdrawn.
    ///
    /// # Errors
    ///
    /// If the window cannot be recorded, or the program ends first.
    pub fn record(
        &mut self,
        record: &Record,
        mut progress: impl FnMut(RecordProgress),
    ) -> Result<RecordedWindow, ClientError> {
        self.send(&Request::Record(record.clone()))?;
        loop {
            match self.read()? {
                Reply::Progress(it) => progress(it),
                Reply::Recorded(recorded) => return Ok(recorded),
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Closes the window that is open. Returns false if none is.
    ///
    /// # Errors
    ///
    /// If the program does not answer.
    pub fn stop(&mut self) -> Result<bool, ClientError> {
        match self.ask(&Request::Stop {})? {
            Reply::Stopped { closed } => Ok(closed),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns who holds the memory of GPUs, and has the program write a file for PyTorch's viewer into this folder, if
    /// one is given. It must be absolute.
    ///
    /// # Errors
    ///
    /// If the program does not follow allocations, or the file cannot be written.
    pub fn snapshot(&mut self, out: Option<PathBuf>) -> Result<Snapshot, ClientError> {
        match self.ask(&Request::Snapshot { out })? {
            Reply::Snapshot(snapshot) => Ok(snapshot),
            other => Err(unexpected(&other)),
        }
    }

    /// Replaces the schedule, and returns it in words: see [`Schedule`](crate::Schedule#impl-FromStr-for-Schedule).
    ///
    /// # Errors
    ///
    /// If the schedule is invalid.
    pub fn set_schedule(&mut self, schedule: impl Into<String>) -> Result<String, ClientError> {
        match self.ask(&Request::Schedule { schedule: schedule.into() })? {
            Reply::Scheduled { schedule } => Ok(schedule),
            other => Err(unexpected(&other)),
        }
    }

    /// Watches the run: the iterator waits for the next state, and ends when the program has ended.
    ///
    /// # Errors
    ///
    /// If the program does not take the request.
    pub fn watch(mut self, every: Duration) -> Result<Watching, ClientError> {
        let every_ms = u64::try_from(every.as_millis()).ok();
        self.send(&Request::Watch { every_ms })?;
        self.reader.get_ref().set_read_timeout(Some(Self::PATIENCE.saturating_add(every)))?;
        Ok(Watching(Some(self)))
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, ClientError> {
        self.send(request)?;
        self.read()
    }

    fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut line = serde_json::to_vec(request).map_err(io::Error::from)?;
        line.push(b'\n');
        // A program that refuses the client may have closed the connection: then its reason can still be read.
        match self.reader.get_mut().write_all(&line) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => Ok(sent?),
        }
    }

    fn read(&mut self) -> Result<Reply, ClientError> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => return Err(ClientError::Closed),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(ClientError::Closed),
            read => read?,
        };
        match serde_json::from_str(&line) {
            Ok(Reply::Error { message }) => Err(ClientError::Refused(message)),
            Ok(reply) => Ok(reply),
            Err(_) => Err(ClientError::Unexpected(line.trim_end().to_owned())),
        }
    }
}

fn unexpected(reply: &Reply) -> ClientError {
    ClientError::Unexpected(serde_json::to_string(reply).unwrap_or_else(|_| format!("{reply:?}")))
}

/// The states of a run, as [`Client::watch`] gets them.
#[derive(Debug)]
pub struct Watching(Option<Client>);

impl Iterator for Watching {
    type Item = Result<Live, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = match self.0.as_mut()?.read() {
            Ok(Reply::Live(live)) => return Some(Ok(*live)),
            Ok(other) => Some(Err(unexpected(&other))),
            Err(ClientError::Closed) => None,
            Err(error) => Some(Err(error)),
        };
        self.0 = None;
        result
    }
}
