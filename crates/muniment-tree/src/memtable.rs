//! The memtable: keys with their versions beside them.
