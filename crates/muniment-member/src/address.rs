//! Where a server can be reached.

use muniment_logger::hostname;

/// See the module's head.
pub struct Address {
    /// The bound TCP port.
    pub port: u16,
    /// The machine's name and the port, as serverStatus shows them.
    pub host: String,
}

impl Address {
    /// The address of a server that listens on this port.
    pub fn new(port: u16) -> Address {
        Address {
            port,
            host: format!("{}:{port}", hostname()),
        }
    }
}
