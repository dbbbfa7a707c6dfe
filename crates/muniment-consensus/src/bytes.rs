//! Numbers and runs of bytes in little-endian order, of which the messages and the state file consist.
//!
//! Must not trust what it reads: a length is checked against the remaining bytes before anything is allocated
//! for it.

/// Reads from the front of a slice. Its methods return `None` if too few bytes are left.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// A run of bytes, which comes after its length.
    pub(crate) fn run(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()?;
        self.take(n as usize)
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        Some(std::str::from_utf8(self.run()?).ok()?.to_owned())
    }

    /// The number of items that follow, each of which takes at least `least` bytes.
    pub(crate) fn count(&mut self, least: usize) -> Option<usize> {
        let n = self.u32()? as usize;
        (n.checked_mul(least)? <= self.0.len()).then_some(n)
    }

    /// `Some` if no bytes are left.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Writes the format that [`Reader`] reads.
#[derive(Default)]
pub(crate) struct Writer(pub Vec<u8>);

impl Writer {
    pub(crate) fn all<const N: usize>(&mut self, values: [u64; N]) {
        for value in values {
            self.u64(value);
        }
    }

    /// Whether there are values, and the values, or as many zeros.
    pub(crate) fn maybe<const N: usize>(&mut self, values: Option<[u64; N]>) {
        self.flag(values.is_some());
        self.all(values.unwrap_or([0; N]));
    }

    pub(crate) fn u8(&mut self, v: u8) {
        self.0.push(v);
    }

    pub(crate) fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    pub(crate) fn flag(&mut self, v: bool) {
        self.u8(u8::from(v));
    }

    /// Writes a run of bytes after its length. A run of more than 4 GiB is cut, but none comes near that.
    pub(crate) fn run(&mut self, v: &[u8]) {
        self.count(v.len());
        self.0
            .extend_from_slice(v.get(..u32::MAX as usize).unwrap_or(v));
    }

    pub(crate) fn count(&mut self, n: usize) {
        self.u32(u32::try_from(n).unwrap_or(u32::MAX));
    }
}
