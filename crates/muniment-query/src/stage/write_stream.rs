//! The last stage of a pipeline that writes: takes every document and gives none.

use super::host::Writer;
use super::{DocStream, Ticker};
use crate::context::Runtime;
use crate::meta;
use bytes::Bytes;
use muniment_value::Result;

/// Drains its source into a writer at the first call.
struct WriteStream {
    source: Box<dyn DocStream>,
    writer: Option<Box<dyn Writer>>,
    ticker: Ticker,
}

/// The documents of `source` written by `writer`.
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
