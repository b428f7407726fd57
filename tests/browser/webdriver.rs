//! A client of ChromeDriver, by the protocol of WebDriver: HTTP with JSON.

use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A browser with one window, which is closed when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts a browser with a window of this size.
    pub(crate) fn start(width: u32, height: u32) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver cannot be started: {error}. `.ci/run browser` installs it"));
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok());
        // ChromeDriver must not be stopped by a pipe that nobody reads.
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Self { driver, port: port.expect("ChromeDriver names no port"), session: String::new() };
        let options = json!({"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            format!("--window-size={width},{height}")]});
        let made = browser.ask(
            "POST",
            "/session",
            &json!({"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }}}),
        );
        browser.session = made["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        browser
    }

    /// Opens a page of kernspan, and waits until it is drawn.
    pub(crate) fn open(&self, page: &Path) {
        self.command("POST", "url", &json!({"url": format!("file://{}", page.display())}));
        self.wait("return document.documentElement.dataset.ready !== undefined");
    }

    /// Sets the size of the window, and of what it shows.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        let command = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics});
        self.command("POST", "goog/cdp/execute", &command);
    }

    /// Runs a script, and returns its value.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("POST", "execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs a script until it returns true. A page that never gets there ends the test.
    #[track_caller]
    pub(crate) fn wait(&self, script: &str) {
        for _ in 0..600 {
            if self.run(script) == true {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("it never is: {script}; {}", self.run("return document.body.textContent.slice(0, 2000)"));
    }

    /// Clicks the first element that a selector finds.
    #[track_caller]
    pub(crate) fn click(&self, selector: &str) {
        let found = self.command("POST", "element", &json!({"using": "css selector", "value": selector}));
        let id = found.as_object().and_then(|found| found.values().next()?.as_str());
        let id = id.unwrap_or_else(|| panic!("{selector} is not there: {found}"));
        let done = self.command("POST", &format!("element/{id}/click"), &json!({}));
        assert_eq!(done, Value::Null, "{selector}");
    }

    /// Presses keys, where the focus is.
    pub(crate) fn press(&self, keys: &[&str]) {
        let actions: Vec<_> =
            keys.iter().flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key}))).collect();
        let actions = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.command("POST", "actions", &actions);
    }

    /// Moves the mouse from one place of the window to another, with its button down.
    pub(crate) fn drag(&self, from: (f64, f64), to: (f64, f64)) {
        let move_to = |(x, y): (f64, f64)| json!({"type": "pointerMove", "duration": 0, "x": x as i64, "y": y as i64});
        let press = |kind: &str| json!({"type": kind, "button": 0});
        let actions = json!([move_to(from), press("pointerDown"), move_to(to), press("pointerUp")]);
        let mouse =
            json!({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions});
        self.command("POST", "actions", &json!({"actions": [mouse]}));
    }

    /// Returns the addresses of all requests so far, and the errors that pages have reported.
    pub(crate) fn requests_and_errors(&self) -> (Vec<String>, Vec<Value>) {
        let log = |kind: &str| self.command("POST", "se/log", &json!({"type": kind}));
        let (performance, console) = (log("performance"), log("browser"));
        let requests = performance.as_array().unwrap().iter().filter_map(|entry| {
            let entry: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &entry["message"];
            let is_request = message["method"] == "Network.requestWillBeSent";
            is_request.then(|| message["params"]["request"]["url"].as_str().unwrap().to_owned())
        });
        let errors = console.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE").cloned();
        (requests.collect(), errors.collect())
    }

    /// Writes a picture of what is seen.
    pub(crate) fn screenshot(&self, path: &Path) {
        let picture = self.command("POST", "goog/cdp/execute", &json!({"cmd": "Page.captureScreenshot", "params": {}}));
        std::fs::write(path, base64(picture["data"].as_str().unwrap())).unwrap();
    }

    #[track_caller]
    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask(method, &format!("/session/{}/{path}", self.session), body)
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let body = body.to_string();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}");
        write!(stream, "{head}\r\n\r\n{body}").unwrap();
        // The connection may stay open after the answer.
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).unwrap();
        let mut answer: Value = serde_json::from_slice(&answer).unwrap();
        let value = answer["value"].take();
        assert!(value.get("error").is_none(), "{method} {path}: {value}");
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.ask("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        // It may have ended by itself.
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Decodes base64.
fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = text.bytes().filter(|&byte| byte != b'=').map(digit).collect();
    let group = |group: &[u32]| {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}
