//! What a session is known by.

/// SHA-256 of the empty name: it stands for a client without a user.
pub const NOBODY: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// Identifies a session by its id and its user: two users who choose the same id have a session each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// The id of `lsid`.
    pub id: [u8; 16],
    /// The SHA-256 digest of the user's name, `user@db`.
    pub user: [u8; 32],
}

impl SessionKey {
    /// A session of a client without a user.
    pub fn of_nobody(id: [u8; 16]) -> SessionKey {
        SessionKey { id, user: NOBODY }
    }

    /// The form in the log and in the tree: the id, then the user.
    pub fn to_bytes(self) -> [u8; 48] {
        let mut bytes = [0; 48];
        let (id, user) = bytes.split_at_mut(self.id.len());
        id.copy_from_slice(&self.id);
        user.copy_from_slice(&self.user);
        bytes
    }

    /// Reads [`SessionKey::to_bytes`]; `None` for other keys.
    pub fn from_bytes(bytes: &[u8]) -> Option<SessionKey> {
        let (id, user) = bytes.split_first_chunk()?;
        let user = user.try_into().ok()?;
        Some(SessionKey { id: *id, user })
    }
}
