//! For a router, which merges the streams of several shards: the same tokens and checks as on a server
//! that has the changes itself.

use super::split::Splitter;
use super::stream::check_token;
use super::token::Token;
use muniment_query::DocStream;
use muniment_storage::Timestamp;
use muniment_value::{Doc, DocBuf, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// The tokens of a stream's events on their way through the stages to the client.
pub struct EventTokens(Mutex<Tokens>);

struct Tokens {
    /// That of the newest event that the stream gave, in the event's form.
    given: DocBuf,
    /// That of the newest event that the cursor passed on; at first the place at which the stream
    /// begins.
    passed: DocBuf,
}

impl EventTokens {
    /// Those of a stream that begins after this token.
    pub fn new(begins: DocBuf) -> EventTokens {
        EventTokens(Mutex::new(Tokens {
            given: DocBuf::new(),
            passed: begins,
        }))
    }

    /// Notes that the stream gives an event with this token.
    pub fn gives(&self, token: Doc<'_>) {
        self.0.lock().given = token.to_buf();
    }

    /// Notes that the event that was given last goes to the client, as the stages have left it.
    ///
    /// # Errors
    /// 280 ChangeStreamFatalError if it does not have its token any more.
    pub fn passes(&self, event: Doc<'_>) -> Result<()> {
        let mut tokens = self.0.lock();
        check_token(event, tokens.given.as_doc())?;
        tokens.passed = std::mem::take(&mut tokens.given);
        Ok(())
    }

    /// The token of the newest event that went to the client, or the place at which the stream began.
    pub fn passed(&self) -> DocBuf {
        self.0.lock().passed.clone()
    }

    /// The stage that divides large events, after all others. `skip` parts of the first event are left out.
    pub fn divide(self: &Arc<Self>, source: Box<dyn DocStream>, skip: u32) -> Box<dyn DocStream> {
        let tokens = Arc::clone(self);
        Box::new(Splitter::new(
            source,
            move |t: Doc<'_>| tokens.gives(t),
            skip,
        ))
    }
}

/// The token before everything that happens at a time.
pub fn mark_before(at: Timestamp) -> DocBuf {
    Token::high_water(at).to_doc()
}

/// What a client's token says: the time of its event, and how many parts of the event the client has, if it
/// was divided.
///
/// # Errors
/// See `Token::parse`.
pub fn read_token(token: Doc<'_>) -> Result<(Timestamp, u32)> {
    let token = Token::parse(token)?;
    Ok((token.place.at, token.fragment.map_or(0, |n| n + 1)))
}
