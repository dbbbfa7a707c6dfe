//! The step `secured`: the suites of the current drivers against a server with logins and TLS, whose
//! certificates `muniment cert --dev` makes, and for each driver a suite about logins and refusals.

use crate::clients::{self, JAVA, ensure, npm, pytest, suite_dir, venv};
use crate::drivers::{lines, read_pytest};
use crate::run::{check, command, server_binary};
use crate::server::{SET, Server};
use crate::test::{Outcome, missing};
use crate::unified;
use std::path::PathBuf;
use std::process::Command;

/// The password of the trust store that the JVM reads.
const STORE_PASSWORD: &str = "changeit";

/// What `muniment cert --dev` has written. The directory is removed in the end.
pub struct Certificates(PathBuf);

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Certificates {
    /// Has them made.
    pub fn make() -> Result<Certificates, String> {
        let name = format!("muniment-certificates-{}", std::process::id());
        let certificates = Certificates(std::env::temp_dir().join(name));
        let mut cert = Command::new(server_binary());
        check(cert.args(["cert", "--force", "--dev"]).arg(&certificates.0))?;
        Ok(certificates)
    }

    /// The path of one of the files.
    pub fn path(&self, file: &str) -> String {
        self.0.join(file).to_string_lossy().into_owned()
    }

    /// The options of a server that takes logins, and connections with TLS only.
    fn options(&self) -> Vec<String> {
        vec![
            "--auth".into(),
            "--tlsMode".into(),
            "requireTLS".into(),
            "--tlsCertificateKeyFile".into(),
            self.path("server.pem"),
            "--tlsCAFile".into(),
            self.path("ca.pem"),
            "--tlsAllowConnectionsWithoutCertificates".into(),
        ]
    }

    /// Starts a server with these options and more, and creates its users.
    pub fn serve(&self, more: &[&str]) -> Result<Server, String> {
        let options = self.options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let server = Server::start_with(&server_binary(), &[&options, more].concat())?;
        check(
            command(venv("current")?.join("bin/python"), &suite_dir("python"))
                .args(["-B", "secured_users.py"])
                .arg(server.port().to_string())
                .arg(&self.0),
        )?;
        Ok(server)
    }

    /// Tells a suite where the server is. Suites that know nothing of logins and TLS find all that they need
    /// in the connection string.
    fn told<'c>(&self, suite: &'c mut Command, server: &Server) -> &'c mut Command {
        suite
            .env("MUNIMENT_URI", self.uri(server))
            .env("MUNIMENT_PORT", server.port().to_string())
            .env("MUNIMENT_CERTS", &self.0)
    }

    fn uri(&self, server: &Server) -> String {
        format!(
            "mongodb://user:password@localhost:{}/?tls=true&tlsCAFile={}",
            server.port(),
            self.path("ca.pem")
        )
    }

    /// A trust store for the JVM, which reads no PEM files.
    fn trust_store(&self) -> Result<String, String> {
        let store = self.path("trust.p12");
        check(
            Command::new("keytool")
                .args(["-importcert", "-noprompt", "-alias", "ca", "-file"])
                .arg(self.path("ca.pem"))
                .args(["-storepass", STORE_PASSWORD, "-keystore", &store]),
        )?;
        Ok(store)
    }
}

/// PyMongo's own tests of logins and TLS: the files, and how many of their tests pass at least. Tests may
/// skip themselves, so a number that falls is a failure. Those of revoked certificates and of wrong host names
/// want an entry `server` in the machine's hosts file, and are skipped without; those of session reuse are on
/// Python 3.11.
const SUITES: [(&[&str], usize); 2] = [
    (
        &[
            "test/test_ssl.py",
            "test/test_auth.py",
            "test/test_auth_spec.py",
        ],
        80,
    ),
    (&["test/test_ssl.py"], 13),
];

/// Creates the user of PyMongo's own tests.
const CREATE_USER: &str = "
import pymongo, sys
c = pymongo.MongoClient('localhost', int(sys.argv[1]), tls=True, tlsCAFile=sys.argv[2], tlsAllowInvalidHostnames=True)
c.admin.command('createUser', 'user', pwd='password', roles=['root'])
";

/// Runs [`SUITES`]: with logins, and without.
fn pymongos_own() -> Result<(), String> {
    let tests = unified::package()?;
    let dir = tests.parent().unwrap_or(&tests);
    let python = venv("current")?.join("bin/python");
    let file = |name: &str| {
        tests
            .join("certificates")
            .join(name)
            .to_string_lossy()
            .into_owned()
    };
    let (ca, pair) = (file("ca.pem"), file("server.pem"));
    let options = [
        "--tlsMode",
        "requireTLS",
        "--tlsCAFile",
        &ca,
        "--tlsCertificateKeyFile",
        &pair,
        "--tlsAllowConnectionsWithoutCertificates",
        "--auth",
    ];
    let without_login = options.get(..options.len() - 1).unwrap_or_default();
    for ((files, least), options) in SUITES.iter().zip([&options[..], without_login]) {
        let server = Server::start_with(&server_binary(), options)?;
        let port = server.port().to_string();
        let mut suite = command(&python, dir);
        suite
            .args([
                "-B",
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--tb=no",
                "-rfE",
            ])
            .args(*files)
            .env("DB_IP", "localhost")
            .env("DB_PORT", &port)
            .env("DISABLE_FLAKY", "1");
        if options.contains(&"--auth") {
            check(command(&python, dir).args(["-c", CREATE_USER, &port, &ca]))?;
            suite.env("DB_USER", "user").env("DB_PASSWORD", "password");
        }
        let results = read_pytest(&lines("secured-pymongo", &mut suite)?)?;
        println!("{}: {} passed", files.join(" "), results.passed);
        if !results.failed.is_empty() || results.passed < *least {
            return Err(format!(
                "PyMongo's {files:?}: {} passed, at least {least} should; failed: {:?}",
                results.passed, results.failed
            ));
        }
    }
    Ok(())
}

/// Runs all suites.
pub fn run() -> Result<Outcome, String> {
    if !ensure("python3", "python3") {
        return missing("python3");
    }
    if !(ensure("node", "nodejs") && ensure("npm", "npm")) {
        return missing("Node.js (node and npm)");
    }
    if !ensure("go", "golang-go") {
        return missing("Go");
    }
    let Some(java) = clients::maven("current") else {
        return missing(JAVA);
    };
    let rust = clients::rust_suite()?;
    let certificates = Certificates::make()?;
    let server = certificates.serve(&[])?;
    python(&certificates, &server)?;
    pymongos_own()?;
    let node = npm("node")?;
    check(certificates.told(
        command("node", &node).args([
            "--test",
            "driver.test.js",
            "oplog.test.js",
            "mongoose.test.js",
            "secured.js",
        ]),
        &server,
    ))?;
    mongosh(&certificates, &server)?;
    let go = clients::go_suite()?;
    check(certificates.told(
        command("go", &go).args(["test", "-count=1", "./..."]),
        &server,
    ))?;
    jvm(java, &certificates, &server)?;
    let mut rust = rust;
    check(certificates.told(&mut rust, &server))?;
    Ok(Outcome::Passed)
}

/// PyMongo, on a plain server and on a set of one whose members log in by their certificates.
fn python(certificates: &Certificates, server: &Server) -> Result<(), String> {
    let mut all = pytest("current", &[])?;
    check(certificates.told(&mut all, server))?;
    let mut logins = pytest("current", &["secured.py"])?;
    check(certificates.told(&mut logins, server))?;
    let set = certificates.serve(&[SET, &["--clusterAuthMode", "x509"]].concat())?;
    let mut logins = pytest("current", &["secured.py"])?;
    check(
        certificates
            .told(&mut logins, &set)
            .env("MUNIMENT_SET", "rs0"),
    )
}

fn mongosh(certificates: &Certificates, server: &Server) -> Result<(), String> {
    let dir = npm("mongosh")?;
    clients::shell(&dir, "smoke", |c| c.arg(certificates.uri(server)))?;
    clients::shell(&dir, "secured", |c| {
        c.args(["--host", "localhost", "--tls", "--port"])
            .arg(server.port().to_string())
            .arg("--tlsCAFile")
            .arg(certificates.path("ca.pem"))
            .arg("--tlsCertificateKeyFile")
            .arg(certificates.path("client.pem"))
    })
}

fn jvm(mut java: Command, certificates: &Certificates, server: &Server) -> Result<(), String> {
    let store = certificates.trust_store()?;
    java.arg(format!(
        "-DargLine=-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}"
    ));
    // The driver reads the certificates from the JVM's settings.
    certificates.told(&mut java, server);
    check(&mut java)
}
