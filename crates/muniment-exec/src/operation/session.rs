//! The form in which documents show a session.

use muniment_storage::SessionKey;
use muniment_value::{DocBuf, Value, doc};

/// A session as all documents show it: `{id, uid}`.
pub fn session_doc(key: &SessionKey) -> DocBuf {
    let uid = Value::Binary {
        subtype: 0,
        bytes: &key.user,
    };
    let id = Value::Binary {
        subtype: 4,
        bytes: &key.id,
    };
    doc! { "id": id, "uid": uid }
}
