//! Messages: their encoding, and which ones are refused.

use crate::timer::Draw;
use crate::*;

fn entries() -> Vec<Entry> {
    let entry = |index, term| Entry {
        index,
        term,
        kind: Kind::Plain,
    };
    let mut entries = vec![entry(8, 3), entry(9, 3), entry(10, 4), entry(11, 4)];
    entries[2].kind = Kind::Config(b"\x01record".as_slice().into());
    entries
}

fn message(body: Body) -> Message {
    Message {
        from: 1,
        to: 2,
        term: 5,
        body,
    }
}

fn append() -> Message {
    message(Body::Append {
        index: 7,
        log_term: 3,
        commit: 6,
        entries: entries(),
    })
}

fn all() -> Vec<Message> {
    let reply = |reject| Body::AppendReply {
        index: 9,
        commit: 8,
        reject,
    };
    let vote = |preliminary, transfer| Body::Vote {
        preliminary,
        index: 9,
        log_term: 4,
        commit: 8,
        commit_term: 3,
        transfer,
    };
    let voted = |preliminary, reject| Body::VoteReply {
        preliminary,
        reject,
        commit: 8,
        commit_term: 3,
    };
    let bodies = [
        reply(None),
        reply(Some((5, 2))),
        vote(true, false),
        vote(false, true),
        voted(true, false),
        voted(false, true),
        Body::Heartbeat {
            commit: 3,
            token: None,
        },
        Body::HeartbeatReply {
            commit: 3,
            token: Some(77),
        },
        Body::TimeoutNow,
        Body::Trimmed {
            index: 12,
            log_term: 4,
        },
        Body::Inform {
            nonce: 9,
            in_force: b"bytes".as_slice().into(),
        },
        Body::Informed {
            nonce: 0,
            version: 4,
            index: 9,
        },
    ];
    let others = bodies.map(message);
    others.into_iter().chain([append()]).collect()
}

#[test]
fn come_back_as_they_were() {
    for message in all() {
        let mut bytes = message.encode();
        let len = bytes.len();
        bytes.extend_from_slice(b"records");
        assert_eq!(Message::decode(&bytes), Some((message.clone(), len)));
        for cut in 0..len {
            assert_eq!(Message::decode(&bytes[..cut]), None);
        }
        // Raft's own form, for the messages that raft knows, keeps everything as well.
        let own = matches!(
            message.body,
            Body::Trimmed { .. } | Body::Inform { .. } | Body::Informed { .. }
        );
        match crate::convert::into_raft(message.clone()) {
            Some(raft) => assert_eq!(crate::convert::from_raft(raft), Some(message)),
            None => assert!(own),
        }
    }
}

#[test]
fn any_bytes_can_be_read() {
    let mut draw = Draw::new(5);
    let mut read = 0;
    for _ in 0..20_000 {
        let all = all();
        let mut bytes = all[draw.below(all.len() as u64) as usize].encode();
        for _ in 0..=draw.below(3) {
            let at = draw.below(bytes.len() as u64) as usize;
            bytes[at] = draw.below(256) as u8;
        }
        if let Some((message, _)) = Message::decode(&bytes) {
            read += 1;
            assert!(message.is_sound());
            let again = message.encode();
            assert_eq!(Message::decode(&again), Some((message, again.len())));
        }
    }
    assert!(read > 1000, "{read}");
}

#[test]
fn unsound_ones_are_refused() {
    let bad: Vec<fn(&mut Message)> = vec![
        |m| m.from = 0,
        |m| m.to = 0,
        |m| m.from = m.to,
        |m| m.term = 0,
        // The entries have a term above the sender's.
        |m| m.term = 3,
        |m| entry(m, 1).index = 10,
        |m| entry(m, 3).term = 3,
        |m| entry(m, 0).term = 0,
    ];
    assert!(append().is_sound());
    for spoil in bad {
        let mut message = append();
        spoil(&mut message);
        assert!(!message.is_sound(), "{message:?}");
        // The encoding has no places of entries, so those cannot be wrong in it.
        let read = Message::decode(&message.encode());
        assert!(read.is_none_or(|(read, _)| read == append()));
    }
}

fn entry(m: &mut Message, i: usize) -> &mut Entry {
    match &mut m.body {
        Body::Append { entries, .. } => &mut entries[i],
        _ => unreachable!("an append"),
    }
}

#[test]
fn are_taken_apart() {
    let mut first = append();
    assert_eq!(first.records(), Some(8..=11));
    let rest = first.split_off(3).unwrap();
    assert_eq!(
        (first.records(), rest.records()),
        (Some(8..=10), Some(11..=11))
    );
    assert!(first.is_sound() && rest.is_sound());
    let Body::Append {
        index, log_term, ..
    } = rest.body
    else {
        panic!("an append");
    };
    assert_eq!((index, log_term), (10, 4));
    assert_eq!(append().split_off(4), None);
    assert_eq!(append().split_off(0).unwrap().records(), Some(9..=11));
    assert_eq!(message(Body::TimeoutNow).split_off(1), None);
}

/// Parts of a message are joined again, but no message that does not follow directly.
#[test]
fn are_put_together() {
    for n in 1..4 {
        let mut first = append();
        let rest = first.split_off(n).unwrap();
        let apart = first.clone();
        assert_eq!(first.join(rest.clone(), 3), Some(rest.clone()));
        assert_eq!(first, apart);
        assert_eq!(first.join(rest.clone(), 4), None);
        assert_eq!(first, append());
        let others: [fn(&mut Message); 6] = [
            |m| m.from += 1,
            |m| m.to += 1,
            |m| m.term += 1,
            |m| m.body = Body::TimeoutNow,
            |m| {
                if let Body::Append { index, .. } = &mut m.body {
                    *index += 1;
                }
            },
            |m| {
                if let Body::Append { log_term, .. } = &mut m.body {
                    *log_term -= 1;
                }
            },
        ];
        for other in others {
            let mut later = rest.clone();
            other(&mut later);
            let mut first = apart.clone();
            assert_eq!(first.join(later.clone(), 9), Some(later));
            assert_eq!(first, apart);
        }
    }
    // A message without entries only says how far the earlier ones are committed.
    let mut told = append();
    let Body::Append { commit, .. } = &mut told.body else {
        panic!("an append");
    };
    let before = *commit;
    let mut newer = message(Body::Append {
        index: 11,
        log_term: 4,
        commit: before + 1,
        entries: Vec::new(),
    });
    assert_eq!(told.join(newer.clone(), 4), None);
    assert_eq!(told.records(), Some(8..=11));
    assert!(matches!(told.body, Body::Append { commit, .. } if commit == before + 1));
    // The commit point never goes back.
    if let Body::Append { commit, .. } = &mut newer.body {
        *commit = before;
    }
    assert_eq!(told.join(newer.clone(), 9), Some(newer));
}
