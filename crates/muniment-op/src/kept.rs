//! What an operation keeps for as long as it runs.

use parking_lot::Mutex;
use std::any::Any;
use std::sync::OnceLock;

/// One thing that is made when an operation first needs it, and that ends with the operation: its
/// JavaScript engine. This crate does not know what it is. A caller takes it out while it uses it.
#[derive(Default)]
pub struct Kept(OnceLock<Mutex<Option<Box<dyn Any + Send>>>>);

impl Kept {
    /// Takes it out, if it is there.
    pub fn take(&self) -> Option<Box<dyn Any + Send>> {
        self.0.get()?.lock().take()
    }

    /// Keeps it for the next caller.
    pub fn put(&self, it: Box<dyn Any + Send>) {
        *self.0.get_or_init(Mutex::default).lock() = Some(it);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn what_is_kept_is_taken_once() {
        let kept = Kept::default();
        assert!(kept.take().is_none());
        kept.put(Box::new(5_u32));
        assert_eq!(*kept.take().unwrap().downcast::<u32>().unwrap(), 5);
        assert!(kept.take().is_none());
    }
}
