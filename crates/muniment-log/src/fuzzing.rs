//! The body of the fuzz target `log`, shared with the test that replays its corpus.

use crate::format::{Begin, FIRST, HEADER, Head, Header, Kind, mark, span};
use crate::{Log, LogOptions, Position};
use muniment_io::{Disk, Open, SimDisk, Timestamp};
use muniment_value::{Code, Result};
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/log";

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        match self.byte() {
            255 => u64::MAX - u64::from(self.byte()),
            b => u64::from(b),
        }
    }
}

/// Builds segments from `data`, with fitting checksums so that mutations get past those, and opens them.
/// Whatever they hold, records must come in order, records that were read must stay, and the log must take
/// appends. With accepted loss it must always open. Panics if any of that does not hold.
pub fn log(data: &[u8]) {
    let mut input = Input(data);
    let from = Timestamp(u64::from(input.byte()));
    let disk = SimDisk::memory();
    if build(&disk, &mut input).is_err() {
        return;
    }
    let copy = disk.fork();
    match work(&disk, from, false) {
        Ok(()) => {}
        Err(e) => assert_eq!(e.code(), Code::DataCorruptionDetected, "{e}"),
    }
    let accepted = work(&copy, from, true);
    assert!(accepted.is_ok(), "with accepted loss: {accepted:?}");
}

fn build(disk: &SimDisk, input: &mut Input<'_>) -> std::io::Result<()> {
    disk.create_dir(Path::new(DIR))?;
    let mut header = Header {
        number: 0,
        salt: 0,
        size: 0,
    };
    let mut file: Vec<u8> = Vec::new();
    let mut at = 0;
    let save = |header: &Header, file: &[u8]| -> std::io::Result<()> {
        if !file.is_empty() {
            let path = Path::new(DIR).join(format!("{:08}.log", header.number));
            disk.open(&path, Open::Create)?.write_at(file, 0)?;
        }
        Ok(())
    };
    while !input.0.is_empty() {
        match input.byte() % 8 {
            0 => {
                save(&header, &file)?;
                header.number = input.number();
                header.salt = input.number();
                header.size = 4096 + 8 * u64::from(input.byte());
                file = vec![0; header.size as usize];
                put(&mut file, 0, &header.encode());
                at = FIRST;
            }
            1 => {
                let begin = begin(input);
                put(&mut file, HEADER, &begin.encode(header.seed()));
            }
            2 => {
                let position = position(input);
                let durable = input.number();
                let len = input.byte() as usize;
                let payload = vec![len as u8; len];
                let crc = crc32c::crc32c(&payload);
                let head = Head::new(Kind::Data, position, durable, len, crc);
                let mut bytes = head.encode(header.seed()).to_vec();
                bytes.extend_from_slice(&payload);
                put(&mut file, at, &bytes);
                at += span(len);
            }
            3 => {
                let bytes = mark(position(input), input.number(), header.seed());
                let end = file.len().saturating_sub(bytes.len());
                put(&mut file, end, &bytes);
            }
            4 => {
                let n = usize::from(input.byte()).min(input.0.len());
                let (bytes, rest) = input.0.split_at(n);
                put(&mut file, at, bytes);
                input.0 = rest;
            }
            5 => at += 8 * usize::from(input.byte()),
            6 => {
                let at = usize::from(input.byte()) << 8 | usize::from(input.byte());
                if let Some(b) = file.get_mut(at) {
                    *b ^= input.byte();
                }
            }
            _ => {
                let n = usize::from(input.byte()) * 16;
                file.truncate(n.max(HEADER));
            }
        }
    }
    save(&header, &file)
}

/// Writes over a part of a file, if the file is long enough.
fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = file.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

fn begin(input: &mut Input<'_>) -> Begin {
    Begin {
        before: position(input),
        ordinal: input.number(),
        generation: input.number(),
        durable: input.number(),
        previous: input.number(),
    }
}

fn position(input: &mut Input<'_>) -> Position {
    Position {
        index: input.number(),
        term: 0,
        at: Timestamp(input.number()),
    }
}

type Seen = Vec<(u64, Timestamp, Vec<u8>)>;

fn open(disk: &SimDisk, from: Timestamp, accept: bool) -> Result<(Log, Seen)> {
    let options = LogOptions {
        disk: Arc::new(disk.clone()),
        segment_bytes: 4096,
        accept_data_loss: accept,
        ..LogOptions::new(Path::new(DIR))
    };
    let mut seen = Seen::new();
    let log = Log::open(options, from, &mut |r| {
        seen.push((r.index, r.at, r.payload.to_vec()));
        Ok(())
    })?;
    Ok((log, seen))
}

fn work(disk: &SimDisk, from: Timestamp, accept: bool) -> Result<()> {
    let (log, mut seen) = open(disk, from, accept)?;
    let mut before: Option<&(u64, Timestamp, Vec<u8>)> = None;
    for record in &seen {
        assert!(record.1 > from);
        if let Some(b) = before {
            assert!(record.0 == b.0 + 1 && record.1 > b.1);
        }
        before = Some(record);
    }
    let last = log.last();
    assert!(before.is_none_or(|b| (b.0, b.1) == (last.index, last.at)));
    assert_eq!(log.durable(), last.index);
    let mut reader = log.read(from);
    let mut n = 0;
    while let Some(r) = reader.next()? {
        assert!(
            seen.get(n)
                .is_some_and(|s| *s == (r.index, r.at, r.payload.to_vec()))
        );
        n += 1;
    }
    assert_eq!(n, seen.len());
    if last.at.0 > u64::MAX - 512 {
        return Ok(());
    }
    let at = Timestamp(last.at.max(from).0 + 1);
    let index = log.append(1, at, &[b"more"])?;
    assert_eq!(index, last.index + 1);
    seen.push((index, at, b"more".to_vec()));
    drop(log);
    let (_, again) = open(disk, from, false)?;
    assert!(again == seen, "not what was left");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    #[test]
    fn seeds_and_corpus() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/log");
        let mut n = 0;
        for entry in std::fs::read_dir(dir).unwrap() {
            super::log(&std::fs::read(entry.unwrap().path()).unwrap());
            n += 1;
        }
        assert!(n >= 5, "the corpus in {dir} is missing");
    }

    /// Random mutations of the corpus, for every run of the tests.
    #[test]
    fn mutations_of_the_corpus() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/log");
        let mut seeds: Vec<Vec<u8>> = std::fs::read_dir(dir)
            .unwrap()
            .map(|e| std::fs::read(e.unwrap().path()).unwrap())
            .collect();
        seeds.sort();
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let rounds = match std::env::var_os("MUNIMENT_LONG") {
            Some(_) => 50_000,
            None => 3_000,
        };
        for _ in 0..rounds {
            let mut data = seeds[random(seeds.len())].clone();
            for _ in 0..1 + random(4) {
                let at = random(data.len());
                match random(4) {
                    0 => data[at] = random(256) as u8,
                    1 => data[at] = random(10) as u8,
                    2 => data.insert(at, random(10) as u8),
                    _ => {
                        let other = &seeds[random(seeds.len())];
                        data.extend_from_slice(&other[random(other.len())..]);
                    }
                }
            }
            let run = std::panic::AssertUnwindSafe(|| super::log(&data));
            if let Err(e) = std::panic::catch_unwind(run) {
                eprintln!("{data:?}");
                std::panic::resume_unwind(e);
            }
        }
    }

    #[test]
    fn a_valid_log_is_read() {
        // Two segments with two records each; the last record is torn.
        let mut data = vec![0, 0, 1, 9, 0, 1, 0, 0, 1, 1, 0, 0];
        data.extend([2, 1, 1, 0, 10, 2, 2, 2, 1, 200]);
        data.extend([
            0, 2, 8, 0, 1, 2, 2, 2, 2, 1, 1, 2, 3, 3, 2, 30, 2, 4, 4, 2, 40,
        ]);
        super::log(&data);
    }
}
