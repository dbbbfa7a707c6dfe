//! A server on a free port and a temporary directory, killed when it goes out of scope.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The variable with the storage engine of the tests' servers: see `cargo xtask test --engine`. The crates'
/// test support reads it, too.
pub const ENGINE: &str = "MUNIMENT_TEST_ENGINE";

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(20);

/// A running server. Its directory is removed with it.
pub struct Server {
    child: Child,
    binary: PathBuf,
    dir: PathBuf,
    port: u16,
    extra: Vec<String>,
    /// Whether it is a router, which has no data.
    routes: bool,
}

/// The arguments that make a server a replica set of one.
pub const SET: &[&str] = &["--replSet", "rs0", "--autoInitiate"];

impl Server {
    /// Starts `binary` on a free port, with the commands for tests enabled.
    pub fn start(binary: &Path) -> Result<Server, String> {
        Server::start_with(binary, &[])
    }

    /// Does the same with more arguments.
    pub fn start_with(binary: &Path, extra: &[&str]) -> Result<Server, String> {
        Server::start_as(binary, extra, false)
    }

    /// Starts a router before the configuration at this address, `name/host:port`.
    pub fn start_router(binary: &Path, config: &str) -> Result<Server, String> {
        Server::start_as(binary, &["--configdb", config], true)
    }

    fn start_as(binary: &Path, extra: &[&str], routes: bool) -> Result<Server, String> {
        let extra: Vec<String> = extra.iter().map(|e| (*e).into()).collect();
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("muniment-xtask-{}-{n}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let child = spawn(binary, &dir, 0, &extra, routes)?;
        let mut server = Server {
            child,
            binary: binary.into(),
            dir,
            port: 0,
            extra,
            routes,
        };
        server.port = server.listening()?;
        Ok(server)
    }

    /// The connection string.
    pub fn uri(&self) -> String {
        format!("mongodb://{}/", self.host())
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How the server ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The last lines of the server's output.
    pub fn last_words(&self, lines: usize) -> String {
        let text = std::fs::read(self.dir.join("log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Starts an ended server again on its port, with its data, or without if it cannot start.
    pub fn restart(&mut self) -> Result<(), String> {
        for wipe in [false, true] {
            if wipe {
                let _ = std::fs::remove_dir_all(self.dir.join("db"));
            }
            self.child = spawn(&self.binary, &self.dir, self.port, &self.extra, self.routes)?;
            match self.listening() {
                Ok(_) => return Ok(()),
                Err(e) if wipe => return Err(e),
                Err(_) => {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                }
            }
        }
        Ok(())
    }

    /// Waits until the server has written its port.
    fn listening(&mut self) -> Result<u16, String> {
        let deadline = Instant::now() + START;
        loop {
            let text = std::fs::read_to_string(self.dir.join("port")).unwrap_or_default();
            if let Ok(port) = text.trim().parse()
                && port != 0
            {
                return Ok(port);
            }
            if let Some(status) = self.ended() {
                let words = self.last_words(5);
                return Err(format!("the server ended at start: {status}\n{words}"));
            }
            if Instant::now() > deadline {
                return Err(format!("the server did not start within {START:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn spawn(
    binary: &Path,
    dir: &Path,
    port: u16,
    extra: &[String],
    routes: bool,
) -> Result<Child, String> {
    let port_file = dir.join("port");
    let _ = std::fs::remove_file(&port_file);
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .map_err(|e| e.to_string())?;
    let errors = log.try_clone().map_err(|e| e.to_string())?;
    let mut command = Command::new(binary);
    command
        .arg(if routes { "router" } else { "serve" })
        .args(["--nounixsocket", "--setParameter"])
        .args(["enableTestCommands=1", "--port"])
        .arg(port.to_string())
        .arg("--portFile")
        .arg(&port_file)
        .args(extra);
    if !routes {
        let engine = std::env::var_os(ENGINE).map(|name| ["--storageEngine".into(), name]);
        command
            .arg("--dbpath")
            .arg(dir.join("db"))
            .args(engine.into_iter().flatten());
    }
    command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|e| format!("{}: {e}", binary.display()))
}
