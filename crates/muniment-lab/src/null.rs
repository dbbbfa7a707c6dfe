//! The processes that do nothing: the null router, and the null responder. The latter parses each
//! message and answers a constant. A load against it therefore costs only what the client, the kernel
//! and the protocol cost.

use crate::commands::{self, Spec};
use crate::docs;
use crate::null_router;
use crate::responder::Responder;
use muniment_load::fail::{Context, Failure, Result};
use muniment_value::Doc;
use muniment_wire::NullServer;
use std::path::Path;
use std::time::Duration;

/// `muniment bench null-responder PORT_FILE FORM`.
pub(crate) const COMMAND: Spec = Spec {
    name: "null-responder",
    arguments: "PORT_FILE FORM",
    about: "",
    page: commands::of_a_child,
    run: |given| {
        let words = given.words();
        let [file, form] = words else {
            return Err(Failure::new("it takes a PORT_FILE and a FORM"));
        };
        let known = Responder::ALL.into_iter().find(|r| form == r.name());
        let form = known.ok_or_else(|| Failure::new("there is no such FORM"))?;
        Ok(commands::ended(serve(Path::new(file), form)))
    },
};

/// `muniment bench null-router PORT_FILE SERVER`.
pub(crate) const ROUTER: Spec = Spec {
    name: "null-router",
    arguments: "PORT_FILE SERVER",
    about: "",
    page: commands::of_a_child,
    run: |given| {
        let words = given.text_words()?;
        let [file, server] = words.as_slice() else {
            return Err(Failure::new("it takes a PORT_FILE and a SERVER"));
        };
        // Without its server it is of no use, and the lab says so when it misses it.
        let lost = || std::process::exit(1);
        let served = null_router::serve(Path::new(file), server, lost);
        Ok(commands::ended(served))
    },
};

/// Serves until it is killed; once it listens, the port is written to `port_file`.
fn serve(port_file: &Path, responder: Responder) -> Result<()> {
    // The reply to a find has one 2 KB document, as the real server's reply in the find yardstick
    // has.
    let mut found = Vec::new();
    docs::point(0, &mut found);
    let server = NullServer::start_as(responder.form(), "127.0.0.1:0", Doc::new(&found))
        .context("starting the null responder")?;
    // The number is written to another file that is then renamed, so that no one reads half of it.
    let part = port_file.with_extension("part");
    std::fs::write(&part, server.port().to_string()).context("writing the port file")?;
    std::fs::rename(&part, port_file).context("writing the port file")?;
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
