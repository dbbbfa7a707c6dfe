//! Runs the null responder by itself, to point other clients at it:
//! `cargo run --release -p muniment-wire --example null-responder -- 127.0.0.1:27018`.

use muniment_value::doc;
use muniment_wire::NullServer;

fn main() -> muniment_value::Result<()> {
    let bind = std::env::args().nth(1);
    let document = doc! { "_id": 1, "text": "x".repeat(2000) };
    let server = NullServer::start(
        bind.as_deref().unwrap_or("127.0.0.1:27018"),
        document.as_doc(),
    )?;
    println!("{}", server.address());
    loop {
        std::thread::park();
    }
}
