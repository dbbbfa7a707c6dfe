//! The in-memory engine.
