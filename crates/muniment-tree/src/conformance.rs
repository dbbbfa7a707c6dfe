//! What every engine must pass.
