//! The suites of real clients. Each one installs what it needs below `target/clients` once, starts a server
//! of its own, and runs against that.

use crate::run::{check, command, have, output, root, server_binary, target_dir};
use crate::secured::Certificates;
use crate::server::{SET, Server};
use crate::test::{Outcome, missing, persistent};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `suite`, which gets MUNIMENT_URI, against a server of its own.
fn against_a_server(suite: &mut Command) -> Result<Outcome, String> {
    let server = Server::start(&server_binary())?;
    check(suite.env("MUNIMENT_URI", server.uri()))?;
    Ok(Outcome::Passed)
}

/// Does the same with a replica set of one.
fn against_a_set(suite: &mut Command) -> Result<Outcome, String> {
    let set = Server::start_with(&server_binary(), SET)?;
    check(suite.env("MUNIMENT_URI", set.uri()))?;
    Ok(Outcome::Passed)
}

/// Runs a workload on a set of three whose primary changes: see the head of handovers.py.
fn beside_handovers(workload: &Command) -> Result<Outcome, String> {
    if !ensure("python3", "python3") {
        return missing("python3");
    }
    let here = root();
    let dir = workload.get_current_dir().unwrap_or(&here);
    let mut suite = command(venv("current")?.join("bin/python"), dir);
    suite
        .arg("-B")
        .arg(suite_dir("python").join("handovers.py"))
        .arg(workload.get_program())
        .args(workload.get_args())
        .env("MUNIMENT_BINARY", server_binary());
    check(&mut suite)?;
    Ok(Outcome::Passed)
}

pub fn suite_dir(name: &str) -> PathBuf {
    root().join("tests").join("clients").join(name)
}

fn install_dir(name: &str) -> PathBuf {
    target_dir().join("clients").join(name)
}

/// Runs `install`, unless it has run for the same `inputs` before.
pub fn once(
    dir: &Path,
    inputs: &str,
    install: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let stamp = dir.join(".installed");
    if std::fs::read_to_string(&stamp).is_ok_and(|s| s == inputs) {
        return Ok(());
    }
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    install()?;
    std::fs::write(&stamp, inputs).map_err(|e| format!("{}: {e}", stamp.display()))
}

/// Installs a package with a missing program, if this is a Debian machine and the user is root.
pub fn ensure(program: &str, package: &str) -> bool {
    if have(program) {
        return true;
    }
    let root_user = output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if root_user && have("apt-get") {
        let _ = check(Command::new("apt-get").args(["update", "-qq"]));
        let _ = check(Command::new("apt-get").args(["install", "-y", "-qq", package]));
    }
    have(program)
}

/// A Python virtual environment with the packages of one of this repository's requirements files.
pub fn venv(requirements: &str) -> Result<PathBuf, String> {
    let file = suite_dir("python").join(format!("requirements-{requirements}.txt"));
    venv_with(requirements, &file)
}

/// A Python virtual environment called `name` with the packages of a requirements file.
pub fn venv_with(name: &str, file: &Path) -> Result<PathBuf, String> {
    let dir = install_dir(&format!("python-{name}"));
    let inputs = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    // Its scripts contain its path, so an environment that was moved with its cache has to be made again.
    let inputs = format!("{}\n{inputs}", dir.display());
    once(&dir, &inputs, || {
        let make = || {
            check(
                Command::new("python3")
                    .args(["-m", "venv", "--clear"])
                    .arg(&dir),
            )
        };
        if make().is_err() {
            ensure("python3-venv", "python3-venv");
            make()?;
        }
        check(
            Command::new(dir.join("bin/pip"))
                .args(["install", "--quiet", "--disable-pip-version-check", "-r"])
                .arg(file),
        )
    })?;
    Ok(dir)
}

/// pytest over `files` of the Python suite, or over all of it.
pub fn pytest(requirements: &str, files: &[&str]) -> Result<Command, String> {
    let venv = venv(requirements)?;
    let mut suite = command(venv.join("bin/python"), &suite_dir("python"));
    suite.args(["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    suite.args(files);
    Ok(suite)
}

pub fn pymongo_current() -> Result<Outcome, String> {
    if !ensure("python3", "python3") {
        return missing("python3");
    }
    against_a_server(&mut pytest("current", &[])?)?;
    // A driver sends nothing again by itself unless there is a set.
    against_a_set(&mut pytest("current", &["test_sessions.py"])?)?;
    let mut load = command(venv("current")?.join("bin/python"), &suite_dir("python"));
    beside_handovers(load.args(["-B", "handovers_load.py"]))
}

pub fn pymongo_legacy() -> Result<Outcome, String> {
    if !ensure("python3", "python3") {
        return missing("python3");
    }
    against_a_server(&mut pytest("legacy", &[])?)
}

/// Runs mlaunch, which starts the `mongod` and the `mongos` of a directory: links to the binary.
pub fn mlaunch() -> Result<Outcome, String> {
    if !persistent() {
        return Ok(Outcome::Skipped("it restarts what it filled".into()));
    }
    if !ensure("python3", "python3") {
        return missing("python3");
    }
    let venv = venv("mlaunch")?;
    let scratch = std::env::temp_dir().join(format!("muniment-mlaunch-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&scratch);
    let bin = scratch.join("bin");
    std::fs::create_dir_all(&bin).map_err(|e| format!("{}: {e}", bin.display()))?;
    for name in ["mongod", "mongos"] {
        std::os::unix::fs::symlink(server_binary(), bin.join(name)).map_err(|e| e.to_string())?;
    }
    // Opening port 0 and closing it again finds a free port.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .map_err(|e| e.to_string())?
        .port();
    let result = check(
        command(venv.join("bin/python"), &suite_dir("python"))
            .args(["-B", "mlaunch.py"])
            .arg(venv.join("bin/mlaunch"))
            .arg(&bin)
            .arg(scratch.join("data"))
            .arg(port.to_string()),
    );
    let _ = std::fs::remove_dir_all(&scratch);
    result.map(|()| Outcome::Passed)
}

/// An npm project of this repository, copied and installed.
pub fn npm(name: &str) -> Result<PathBuf, String> {
    npm_from(name, &suite_dir(name))
}

/// A copy of an npm project below the target directory, with its packages.
pub fn npm_from(name: &str, from: &Path) -> Result<PathBuf, String> {
    let dir = install_dir(&format!("npm-{name}"));
    let manifest = from.join("package.json");
    let inputs =
        std::fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    once(&dir, &inputs, || {
        std::fs::copy(&manifest, dir.join("package.json")).map_err(|e| e.to_string())?;
        check(command("npm", &dir).args([
            "install",
            "--no-package-lock",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ]))
    })?;
    for entry in std::fs::read_dir(from)
        .map_err(|e| e.to_string())?
        .flatten()
    {
        if entry.path().extension().is_some_and(|e| e == "js") {
            std::fs::copy(entry.path(), dir.join(entry.file_name())).map_err(|e| e.to_string())?;
        }
    }
    Ok(dir)
}

pub fn node() -> Result<Outcome, String> {
    if !(ensure("node", "nodejs") && ensure("npm", "npm")) {
        return missing("Node.js (node and npm)");
    }
    let dir = npm("node")?;
    let tests = |files: &[&str]| {
        let mut node = command("node", &dir);
        node.arg("--test").args(files);
        node
    };
    against_a_server(&mut tests(&[
        "driver.test.js",
        "oplog.test.js",
        "mongoose.test.js",
    ]))?;
    // Most programs that follow the oplog require a set, and users of Mongoose have one.
    against_a_set(&mut tests(&["oplog.test.js", "mongoose.test.js"]))?;
    beside_handovers(command("node", &dir).arg("handovers_load.js"))
}

/// Runs mongodb-memory-server, which starts a `mongod`: a link to the binary.
pub fn memory_server() -> Result<Outcome, String> {
    if !persistent() {
        return Ok(Outcome::Skipped("it chooses the engine itself".into()));
    }
    if !(ensure("node", "nodejs") && ensure("npm", "npm")) {
        return missing("Node.js (node and npm)");
    }
    let dir = npm("memory-server")?;
    let name = format!("muniment-memory-server-{}", std::process::id());
    let scratch = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&scratch);
    std::fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let mongod = scratch.join("mongod");
    std::os::unix::fs::symlink(server_binary(), &mongod).map_err(|e| e.to_string())?;
    let result = check(
        command("node", &dir)
            .args(["--test", "memory_server.test.js"])
            .env("MONGOD", &mongod),
    );
    let _ = std::fs::remove_dir_all(&scratch);
    result.map(|()| Outcome::Passed)
}

pub fn mongosh() -> Result<Outcome, String> {
    if !(ensure("node", "nodejs") && ensure("npm", "npm")) {
        return missing("Node.js (node and npm)");
    }
    let dir = npm("mongosh")?;
    let server = Server::start(&server_binary())?;
    shell(&dir, "smoke", |c| c.arg(server.uri()))?;
    let members: Vec<Server> = (0..4)
        .map(|_| Server::start_with(&server_binary(), &["--replSet", "shell"]))
        .collect::<Result<_, _>>()?;
    let hosts: Vec<String> = members.iter().map(Server::host).collect();
    shell(&dir, "set", |c| {
        c.arg("--nodb").env("HOSTS", hosts.join(","))
    })?;
    Ok(Outcome::Passed)
}

/// Runs a script in mongosh, called with the arguments that `with` adds. The script's last line prints that
/// it has come to its end.
pub fn shell(
    dir: &Path,
    script: &str,
    with: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<(), String> {
    let mut shell = command(dir.join("node_modules/.bin/mongosh"), dir);
    with(&mut shell)
        .args(["--quiet", "--norc", "--file"])
        .arg(format!("{script}.js"))
        .env("HOME", dir);
    let printed = output(&mut shell)?;
    println!("{printed}");
    let passed = printed.contains(&format!("mongosh {script} passed"));
    let missed = format!("mongosh did not reach the end of {script}.js");
    passed.then_some(()).ok_or(missed)
}

/// A copy of the Go suite, because `go mod tidy` writes go.sum next to go.mod.
pub fn go_suite() -> Result<PathBuf, String> {
    let dir = install_dir("go");
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    for file in [
        "go.mod",
        "driver_test.go",
        "handovers_test.go",
        "secured_test.go",
    ] {
        std::fs::copy(suite_dir("go").join(file), dir.join(file)).map_err(|e| e.to_string())?;
    }
    check(command("go", &dir).args(["mod", "tidy"]))?;
    Ok(dir)
}

pub fn go() -> Result<Outcome, String> {
    if !ensure("go", "golang-go") {
        return missing("Go");
    }
    let dir = go_suite()?;
    against_a_server(command("go", &dir).args(["test", "-count=1", "./..."]))?;
    let load = ["test", "-count=1", "-v", "-run", "^TestHandovers$", "./..."];
    beside_handovers(command("go", &dir).args(load))
}

/// `mvn test` in one of the Java projects; `None` if there is no Maven.
pub fn maven(name: &str) -> Option<Command> {
    if !(ensure("javac", "default-jdk-headless") && ensure("mvn", "maven")) {
        return None;
    }
    let repository = install_dir("maven").join("repository");
    let build = install_dir("maven").join(name);
    let mut suite = command("mvn", &suite_dir("java").join(name));
    suite
        .args(["--batch-mode", "--quiet", "test"])
        .arg(format!("-Dmaven.repo.local={}", repository.display()))
        .arg(format!("-DbuildDirectory={}", build.display()));
    Some(suite)
}

pub const JAVA: &str = "a JDK and Maven";

pub fn java_current() -> Result<Outcome, String> {
    let (Some(mut suite), Some(mut load)) = (maven("current"), maven("current")) else {
        return missing(JAVA);
    };
    against_a_server(&mut suite)?;
    beside_handovers(load.arg("-Dtest=HandoverTest"))
}

pub fn java_legacy() -> Result<Outcome, String> {
    maven("legacy").map_or_else(|| missing(JAVA), |mut suite| against_a_server(&mut suite))
}

pub fn java_spring() -> Result<Outcome, String> {
    let Some(mut suite) = maven("spring") else {
        return missing(JAVA);
    };
    against_a_server(&mut suite)?;
    against_a_set(&mut suite)
}

/// Debezium's connector requires the times that only a set reports.
pub fn java_debezium() -> Result<Outcome, String> {
    maven("debezium").map_or_else(|| missing(JAVA), |mut suite| against_a_set(&mut suite))
}

/// The Rust suite, compiled.
pub fn rust_suite() -> Result<Command, String> {
    let dir = suite_dir("rust");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let suite = || {
        let mut suite = command(&cargo, &dir);
        suite
            .arg("test")
            .env("CARGO_TARGET_DIR", install_dir("rust"));
        suite
    };
    check(suite().args(["--no-run", "--quiet"]))?;
    Ok(suite())
}

pub fn rust() -> Result<Outcome, String> {
    against_a_server(&mut rust_suite()?)
}

/// The database tools: from MONGO_TOOLS (a directory) or the PATH. Package indexes and module proxies do not
/// have them, so if they are missing the step is skipped even in CI. docs/internals/testing.md says how they
/// are built.
pub fn mongo_tools() -> Result<Outcome, String> {
    let dir = match std::env::var_os("MONGO_TOOLS") {
        Some(dir) => PathBuf::from(dir),
        None if have("mongodump") => PathBuf::new(),
        None => {
            return Ok(Outcome::Skipped(
                "mongodump is not on the PATH and MONGO_TOOLS names no directory with it".into(),
            ));
        }
    };
    let python = venv("current")?.join("bin/python");
    let suite = |script: &str| {
        let mut suite = command(&python, &suite_dir("python"));
        suite.args(["-B", script]).arg(&dir);
        suite
    };
    against_a_server(&mut suite("mongo_tools.py"))?;
    let set = Server::start_with(&server_binary(), SET)?;
    let target = Server::start_with(&server_binary(), &[])?;
    check(
        suite("mongo_tools_oplog.py")
            .env("MUNIMENT_URI", set.uri())
            .env("MUNIMENT_TARGET_URI", target.uri()),
    )?;
    check(suite("mongo_tools_set.py").env("MUNIMENT_BINARY", server_binary()))?;
    let certificates = Certificates::make()?;
    let (one, other) = (certificates.serve(&[])?, certificates.serve(&[])?);
    check(
        suite("mongo_tools_users.py")
            .arg(one.port().to_string())
            .arg(other.port().to_string())
            .arg(certificates.path("ca.pem")),
    )?;
    Ok(Outcome::Passed)
}
