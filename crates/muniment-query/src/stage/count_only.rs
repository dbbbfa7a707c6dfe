//! Results that only depend on a count.

use muniment_value::{DocBuf, ValueBuf};

/// The form of a pipeline's result if it only depends on a count: see [`super::Pipeline::count_only`].
#[derive(Clone, Debug)]
pub struct CountOnly {
    /// The constant `_id` of a `$group`.
    pub(crate) id: Option<ValueBuf>,
    /// The names of the fields that hold the count.
    pub(crate) fields: Vec<String>,
}

impl CountOnly {
    /// The result document for `n` documents; there is none for 0.
    pub fn result(&self, n: u64) -> Option<DocBuf> {
        if n == 0 {
            return None;
        }
        let n = muniment_value::number::narrow(i64::try_from(n).unwrap_or(i64::MAX));
        let mut d = DocBuf::new();
        d.append_some("_id", self.id.as_ref());
        for f in &self.fields {
            d.append(f, n);
        }
        Some(d)
    }
}
