//! The last stage of a pipeline that writes: takes every document and gives none.

use super::host::Writer;
use super::{DocStream, Ticker};
use crate::meta;
use bytes::Bytes;
use muniment_value::Result;

/// Drains its source into a writer at the first call.
pub(crate) struct WriteStream {
    source: Box<dyn DocStream>,
    writer: Option<Box<dyn Writer>>,
    ticker: Ticker,
}

impl WriteStream {
    pub fn new(source: Box<dyn DocStream>, writer: Box<dyn Writer>, ticker: Ticker) -> WriteStream {
        WriteStream {
            source,
            writer: Some(writer),
            ticker,
        }
    }
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
