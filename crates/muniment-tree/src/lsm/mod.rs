//! The durable engine: a log-structured merge tree with tables of our own.
