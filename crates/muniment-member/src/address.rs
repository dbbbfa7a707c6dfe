//! Where a server can be reached.

use muniment_logger::hostname;
use std::path::PathBuf;

/// See the module's head.
pub struct Address {
    /// The bound TCP port.
    pub port: u16,
    /// The machine's name and the port, as serverStatus shows them.
    pub host: String,
    /// The file of its Unix socket.
    pub socket: Option<PathBuf>,
}

impl Address {
    /// The address of a server that listens on this port, and on a Unix socket if it has one.
    pub fn new(port: u16, socket: Option<PathBuf>) -> Address {
        Address {
            port,
            host: format!("{}:{port}", hostname()),
            socket,
        }
    }
}
