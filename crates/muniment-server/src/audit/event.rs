//! The document of one event of the audit log, in MongoDB's schema "mongo".

use crate::connections::ConnShared;
use crate::uuid::random_uuid;
use muniment_auth::names::{RoleName, UserName};
use muniment_logger::now_ms;
use muniment_value::{ArrayBuf, Code, DocBuf, Value, doc};
use std::net::SocketAddr;

/// The originator of an event: a connection with its user, or the server itself.
pub struct Who {
    uuid: Option<[u8; 16]>,
    local: DocBuf,
    remote: DocBuf,
    users: ArrayBuf,
    roles: ArrayBuf,
}

impl Who {
    /// The server itself.
    pub fn server() -> Who {
        Who {
            uuid: None,
            local: DocBuf::new(),
            remote: DocBuf::new(),
            users: ArrayBuf::new(),
            roles: ArrayBuf::new(),
        }
    }

    /// Whether somebody has logged in.
    pub fn is_known(&self) -> bool {
        !self.users.as_doc().is_empty()
    }

    /// A connection, with the user who has logged in on it and that user's roles.
    pub fn of(conn: &ConnShared, user: Option<(&UserName, &[RoleName])>) -> Who {
        Who {
            uuid: Some(*conn.uuid.get_or_init(random_uuid)),
            local: end(conn.stream.local().as_deref()),
            remote: end(Some(&*conn.peer)),
            users: user.iter().map(|(name, _)| name.to_doc()).collect(),
            roles: user
                .iter()
                .flat_map(|(_, roles)| *roles)
                .map(RoleName::to_doc)
                .collect(),
        }
    }
}

/// One end of a connection; a Unix socket has no address.
fn end(address: Option<&str>) -> DocBuf {
    let address = address.and_then(|a| a.parse::<SocketAddr>().ok());
    match address {
        Some(a) => doc! { "ip": a.ip().to_string(), "port": i32::from(a.port()) },
        None => doc! { "unix": "anonymous" },
    }
}

/// The document of an event.
pub fn document(who: &Who, atype: &str, param: &DocBuf, result: Code) -> DocBuf {
    let mut d = doc! { "atype": atype, "ts": Value::DateTime(now_ms()) };
    if let Some(uuid) = &who.uuid {
        d.append(
            "uuid",
            Value::Binary {
                subtype: 4,
                bytes: uuid,
            },
        );
    }
    d.append("local", &who.local);
    d.append("remote", &who.remote);
    d.append("users", &who.users);
    d.append("roles", &who.roles);
    d.append("param", param);
    d.append("result", result.0);
    d
}
