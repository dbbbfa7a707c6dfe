//! A client with a session, which continues when the server comes back, and the address at which it does.

use muniment_value::{Code, DocBuf, Value, doc, number};
use muniment_wire::Connection;
use std::sync::Mutex;
use std::time::Duration;

/// The address of the server, or of the members of a set, for threads that continue when the server comes
/// back at another address.
#[derive(Debug)]
pub struct Address(Mutex<Option<Vec<String>>>);

impl Address {
    /// The server's address now.
    pub fn new(address: String) -> Address {
        Address::of_set(vec![address])
    }

    /// The addresses of a set's members.
    pub fn of_set(members: Vec<String>) -> Address {
        Address(Mutex::new(Some(members)))
    }

    /// Notes that the server has come back at this address.
    ///
    /// # Panics
    /// If a thread that holds the address has panicked.
    pub fn set(&self, address: String) {
        *self.0.lock().unwrap() = Some(vec![address]);
    }

    /// Notes that one of several servers has come back at this address.
    ///
    /// # Panics
    /// As for [`Address::set`].
    pub fn set_one(&self, at: usize, address: String) {
        if let Some(one) = self
            .0
            .lock()
            .unwrap()
            .as_mut()
            .and_then(|all| all.get_mut(at))
        {
            *one = address;
        }
    }

    /// The server's address, or that of one of several members, in turn; `None` if the test has failed
    /// elsewhere, and no thread should continue.
    ///
    /// # Panics
    /// As for [`Address::set`].
    pub fn get(&self, turn: usize) -> Option<String> {
        let all = self.0.lock().unwrap();
        let all = all.as_ref()?;
        all.get(turn % all.len().max(1)).cloned()
    }

    /// A guard for the thread that runs the others, which end when it panics.
    pub fn guard(&self) -> Guard<'_> {
        Guard(self)
    }
}

/// See [`Address::guard`].
#[derive(Debug)]
pub struct Guard<'a>(&'a Address);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(mut address) = self.0.0.lock()
        {
            *address = None;
        }
    }
}

/// How long a member may take to connect, and to answer.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// A session of a client that loses its server and finds it again at another address.
pub struct Session<'a> {
    address: &'a Address,
    connection: Option<Connection>,
    /// The index of the current address.
    turn: usize,
    lsid: [u8; 16],
    number: i64,
}

impl<'a> Session<'a> {
    /// Session number `of`, with the server that is at `address`.
    pub fn new(address: &'a Address, of: u8) -> Session<'a> {
        let mut lsid = [0; 16];
        lsid[0] = of;
        Session {
            address,
            connection: None,
            turn: 0,
            lsid,
            number: 0,
        }
    }

    /// Makes the next commands belong to another transaction or retryable write.
    pub fn begin(&mut self) {
        self.number += 1;
    }

    /// The command as a retryable write.
    pub fn retryable(&self, command: &DocBuf) -> DocBuf {
        let mut d = command.clone();
        let id = Value::Binary {
            subtype: 4,
            bytes: &self.lsid,
        };
        d.append("lsid", doc! { "id": id });
        d.append("txnNumber", self.number);
        d
    }

    /// The command as one of a transaction; it is the first one if it `starts` it.
    pub fn in_transaction(&self, command: &DocBuf, starts: bool) -> DocBuf {
        let mut d = self.retryable(command);
        d.append("autocommit", false);
        if starts {
            d.append("startTransaction", true);
        }
        d
    }

    /// Sends the next command to the next member.
    pub fn elsewhere(&mut self) {
        self.connection = None;
        self.turn += 1;
    }

    /// Sends a command once. `None` if the connection ended before the reply, there was no reply for long, or
    /// there is no server. The next command then goes to the next member.
    ///
    /// # Panics
    /// If the test has failed elsewhere.
    pub fn send(&mut self, db: &str, command: &DocBuf) -> Option<DocBuf> {
        let address = self.address.get(self.turn).expect("another thread failed");
        if self.connection.is_none() {
            let connection = Connection::connect_timeout(&address, PATIENCE.0);
            self.connection = connection.ok();
            if let Some(c) = &mut self.connection {
                c.set_timeout(Some(PATIENCE.1)).ok()?;
            } else {
                self.turn += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let reply = self.connection.as_mut()?.command_raw(db, command).ok();
        if reply.is_none() {
            self.elsewhere();
        }
        reply
    }
}

/// The error code of a reply; `None` if it is not an error.
pub fn code_of(reply: &DocBuf) -> Option<Code> {
    let code = reply.as_doc().get("code").and_then(number::to_i64_exact)?;
    i32::try_from(code).ok().map(Code)
}

/// Whether an error has this label.
pub fn has_label(reply: &DocBuf, label: &str) -> bool {
    let labels = reply.as_doc().get_array("errorLabels");
    labels.is_some_and(|all| all.values().any(|v| v.as_str() == Some(label)))
}
