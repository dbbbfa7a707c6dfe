//! The last stage of a pipeline that writes: it takes every document and returns none.

use super::host::Writer;
use super::{DocStream, Ticker};
use crate::context::Runtime;
use crate::meta;
use bytes::Bytes;
use muniment_value::Result;

/// Writes all documents of its source at the first call.
struct WriteStream {
    source: Box<dyn DocStream>,
    writer: Option<Box<dyn Writer>>,
    ticker: Ticker,
}

/// A stream that writes the documents of `source` with `writer`.
pub(crate) fn open(
    source: Box<dyn DocStream>,
    writer: Box<dyn Writer>,
    rt: &Runtime,
) -> Box<dyn DocStream> {
    Box::new(WriteStream {
        source,
        writer: Some(writer),
        ticker: Ticker::new(rt),
    })
}

impl DocStream for WriteStream {
    fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(mut writer) = self.writer.take() {
            while let Some(doc) = self.source.next()? {
                self.ticker.tick()?;
                writer.write(meta::without(doc))?;
            }
            writer.finish()?;
        }
        Ok(None)
    }
}
