//! Tests of many clients, and of those that misbehave: the program goes on, and nothing is lost or grows.

use crate::{
    support::{child, eventually},
    training::{self, Training, train},
};
use kernspan::control::{
    Client, ClientError,
    protocol::{MAX_REQUEST, Record, Reply},
};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::Path,
    thread,
    time::Duration,
};

/// The socket that another user connects to.
const SOCKET: &str = "KERNSPAN_TEST_SOCKET";
/// The most clients that are served at a time.
const CLIENTS: usize = 32;

/// Connects without introducing oneself, and reads the first line.
fn stream(training: &Training) -> BufReader<UnixStream> {
    let mut stream = BufReader::new(UnixStream::connect(training.socket()).unwrap());
    assert!(matches!(reply(&mut stream), Some(Reply::Hello(_))));
    stream
}

/// Reads a reply; `None` if the program has closed the connection.
fn reply(stream: &mut BufReader<UnixStream>) -> Option<Reply> {
    let mut line = String::new();
    match stream.read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(serde_json::from_str(&line).unwrap()),
    }
}

fn error(reply: Option<Reply>) -> String {
    match reply {
        Some(Reply::Error { message }) => message,
        other => panic!("{other:?}"),
    }
}

/// Waits until the program serves nobody else, so that it can be counted what it has.
fn wait_until_alone(pid: u32) {
    eventually("all clients to be gone", || (threads(pid, "kernspan-client") == 0).then_some(()));
}

/// The number of threads of a process with this name, of which Linux keeps fifteen letters.
fn threads(pid: u32, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| name.starts_with(comm.trim_end())).count()
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn a_thousand_requests_leave_nothing_behind() {
    let training = training::start("clients::a_thousand_requests_leave_nothing_behind", train);
    let pid = training.status().pid;
    let ask = |requests: u64| {
        let mut windows = 0;
        for request in 0..requests {
            // Each in a connection of its own, and every tenth for a window, which goes to the exporters.
            let mut client = training.client();
            if request % 10 == 0 {
                let recorded = client.record(&Record::steps(1), |_| ()).unwrap();
                assert_eq!((recorded.steps, recorded.files.len()), (1, 0));
                windows += 1;
            }
            client.status().unwrap();
        }
        windows
    };
    let mut windows = ask(200);
    wait_until_alone(pid);
    let before = (open_files(pid), resident_kib(pid));
    windows += ask(1000);
    wait_until_alone(pid);
    let after = (open_files(pid), resident_kib(pid));
    assert_eq!(before.0, after.0, "open files");
    // A leak of a client's buffers, or of one window in ten, would be megabytes.
    assert!(after.1 < before.1 + 3 * 1024, "{before:?} {after:?} KiB");
    assert_eq!(u64::from(training.status().windows), windows);
    training.stop();
}

#[test]
fn fifty_clients_at_once_with_half_of_them_killed() {
    let training = training::start("clients::fifty_clients_at_once_with_half_of_them_killed", train);
    let socket = training.socket();
    let ask = |number: u64| {
        let socket = socket.clone();
        thread::spawn(move || {
            // Half of them die: in the middle of a line, or while their request waits.
            let request = &b"{\"request\":\"record\",\"steps\":1,\"at_step\":1000000000}\n"[..];
            let sent = match number % 4 {
                0 => &request[..20],
                2 => request,
                _ => &[],
            };
            if !sent.is_empty() {
                let mut stream = UnixStream::connect(socket).unwrap();
                let _ = stream.write_all(sent);
                let _ = stream.read(&mut [0; 8]);
                return 0;
            }
            // Those who are refused come again.
            eventually("a place", || match Client::connect(&socket) {
                Ok(mut client) => Some(client.record(&Record::steps(1), |_| ()).unwrap().steps),
                Err(ClientError::Refused(reason)) => {
                    assert!(reason.contains("32 clients are connected already"), "{reason}");
                    None
                }
                Err(error) => panic!("{error}"),
            })
        })
    };
    let clients: Vec<_> = (0..50).map(ask).collect();
    assert_eq!(clients.into_iter().map(|client| client.join().unwrap()).sum::<u64>(), 25);
    let pid = eventually("a place", || Some(Client::connect(&socket).ok()?.hello().pid));
    wait_until_alone(pid);
    eventually("the end of requests", || (training.status().requests == 0).then_some(()));
    let status = training.status();
    assert_eq!((status.requests, status.recording, status.windows), (0, false, 25));
    training.wait_for_steps();
    training.stop();
}

#[test]
fn a_client_that_dies_withdraws_its_request() {
    let training = training::start("clients::a_client_that_dies_withdraws_its_request", train);
    let mut client = stream(&training);
    client.get_mut().write_all(b"{\"request\":\"record\",\"steps\":5,\"at_step\":1000000000}\n").unwrap();
    assert!(matches!(reply(&mut client), Some(Reply::Progress(_))));
    assert_eq!(training.status().requests, 1);
    drop(client);
    eventually("its end", || (training.status().requests == 0).then_some(()));
    assert_eq!(training.status().windows, 0);
    training.stop();
}

#[test]
fn more_clients_than_there_are_places_are_refused() {
    let training = training::start("clients::more_clients_than_there_are_places_are_refused", train);
    let pid = training.status().pid;
    wait_until_alone(pid);
    let clients: Vec<_> = (0..CLIENTS).map(|_| stream(&training)).collect();
    let mut refused = BufReader::new(UnixStream::connect(training.socket()).unwrap());
    assert!(error(reply(&mut refused)).contains("try again later"));
    assert!(reply(&mut refused).is_none());
    drop(clients);
    wait_until_alone(pid);
    training.status();
    training.stop();
}

#[test]
fn garbage_is_refused_politely() {
    let training = training::start("clients::garbage_is_refused_politely", train);
    let refused = |bytes: &[u8]| {
        let mut client = stream(&training);
        // The program may close the connection before it has got everything.
        let _ = client.get_mut().write_all(bytes);
        let message = error(reply(&mut client));
        assert!(reply(&mut client).is_none());
        message
    };
    for garbage in
        [&b"GET / HTTP/1.1\r\n"[..], b"\n", b"{}\n", b"\xff\xfe\0\n", b"{\"request\":\"record\"\n", b"[[[[\n"]
    {
        assert!(refused(garbage).contains("the request is not understood"), "{garbage:?}");
    }
    let deep = [vec![b'['; 60_000], vec![b'\n']].concat();
    assert!(refused(&deep).contains("the request is not understood"));
    assert!(refused(&vec![b'x'; MAX_REQUEST + 1]).contains("longer than 65536 bytes"));
    assert!(refused(&vec![b'x'; 32 << 20]).contains("longer than 65536 bytes"));
    // A request that makes no sense does not cost the connection.
    let mut client = training.client();
    let wrong = [
        (Record::default(), "expected either steps, duration_ms or recent"),
        (Record { recent: true, ..Record::default() }, "there is no flight recorder"),
        (Record { recent: true, ..Record::steps(1) }, "expected either steps, duration_ms or recent"),
        (Record::steps(0), "a window of 0 steps"),
        (Record { at_step: Some(0), ..Record::steps(1) }, "step 0 has begun"),
        (Record { when: Some("loss > 3".into()), ..Record::steps(1) }, "step_time > 2*median"),
        (Record { out: Some("relative".into()), ..Record::steps(1) }, "is not absolute"),
        (Record { out: Some("/proc/no/such".into()), ..Record::steps(1) }, "cannot write /proc/no/such"),
    ];
    for (record, problem) in wrong {
        let refused = client.record(&record, |_| ()).unwrap_err().to_string();
        assert!(refused.contains(problem), "{record:?}: {refused}");
    }
    assert!(client.set_schedule("active=0").unwrap_err().to_string().contains("active is 0"));
    assert!(client.snapshot(None).unwrap_err().to_string().contains("memory_snapshots"));
    assert!(!client.stop().unwrap());
    training.wait_for_steps();
    training.stop();
}

#[test]
fn a_client_that_does_not_read_changes_nothing() {
    let training = training::start("clients::a_client_that_does_not_read_changes_nothing", || {
        // As programs have it that are used in pipes. A write to a client that is gone would end the program.
        heed_sigpipe();
        train();
    });
    let pid = training.status().pid;
    let deaf: Vec<_> = (0..4)
        .map(|_| {
            let mut client = stream(&training);
            client.get_mut().write_all(b"{\"request\":\"watch\",\"every_ms\":1}\n").unwrap();
            client
        })
        .collect();
    // One that hangs up when there is more for it to read than fits: the program is writing, or is about to.
    let mut gone = stream(&training);
    gone.get_mut().write_all(&b"{\"request\":\"status\"}\n".repeat(2_000)).unwrap();
    gone.get_mut().read_exact(&mut [0; 10]).unwrap();
    drop(gone);
    let first = training.status().step;
    eventually("a thousand steps", || (training.status().step > first + 1000).then_some(()));
    drop(deaf);
    wait_until_alone(pid);
    training.stop();
}

/// Has SIGPIPE do what it does by default.
#[allow(unsafe_code, reason = "there is no safe function for it")]
fn heed_sigpipe() {
    // SAFETY: the default action is set before the process has threads of its own.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

#[test]
fn only_the_user_can_reach_the_socket() {
    let name = "clients::only_the_user_can_reach_the_socket";
    if let Some(socket) = std::env::var_os(SOCKET) {
        become_nobody();
        println!("{:?}", Client::connect(socket).map(|_| ()));
        std::process::exit(0);
    }
    let training = training::start(name, train);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (folder, socket) = (training.sockets(), training.socket());
    assert_eq!((mode(&folder), mode(&socket)), (0o700, 0o600));
    // Another user, where this test may become one: even if the modes let everybody in.
    if fs::metadata(&socket).unwrap().uid() != 0 {
        eprintln!("NOT TESTED: only root can become another user; the rule itself is tested in src/control/sockets.rs");
        return drop(training.stop());
    }
    for path in [training.folder.path(), &folder, &socket] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let asked = child::program(name, &[(SOCKET, socket.as_os_str())], || ()).wait();
    assert!(asked.stdout.contains("Refused") && asked.stdout.contains("user 65534 may not ask it"), "{asked:?}");
    training.stop();
}

/// Becomes another user, who owns nothing.
#[allow(unsafe_code, reason = "there is no safe function for all threads of a process")]
fn become_nobody() {
    // SAFETY: `setuid` takes a number, and changes nothing that Rust relies on.
    assert_eq!(unsafe { libc::setuid(65534) }, 0);
}

#[test]
fn a_program_that_nobody_asks_hardly_wakes() {
    let training = training::start("clients::a_program_that_nobody_asks_hardly_wakes", || {
        let profiler = training::profiler(|builder| builder);
        let stop = training::runtime().join("stop");
        profiler.step();
        eventually("the end", || stop.exists().then_some(()));
        profiler.finish().unwrap();
    });
    let pid = training.status().pid;
    wait_until_alone(pid);
    let wakes = |name: &str| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let of_name = tasks.filter(|task| fs::read_to_string(task.path().join("comm")).unwrap().starts_with(name));
        let status = of_name.map(|task| fs::read_to_string(task.path().join("status")).unwrap());
        let count = |status: String| {
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        status.map(count).collect::<Vec<_>>()
    };
    let names = ["kernspan-contro", "kernspan-steps"];
    let before = names.map(wakes);
    let seconds = 2;
    // The time over which wakes are counted: on a busy machine there are fewer of them, not more.
    thread::sleep(Duration::from_secs(seconds));
    let after = names.map(wakes);
    assert_eq!(before.each_ref().map(Vec::len), [1, 1]);
    assert_eq!(before[0], after[0], "the listening thread sleeps");
    // Up to 200 ms more, before and after.
    assert!(after[1][0] - before[1][0] <= 5 * seconds + 2, "{before:?} {after:?}");
    training.stop();
}
