#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;

fn disk() -> (SimDisk, PathBuf) {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/d")).unwrap();
    (disk, PathBuf::from("/d/a"))
}

fn file(disk: &SimDisk, path: &Path) -> Arc<dyn File> {
    let f = disk.open(path, Open::Create).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    f
}

/// The possible contents of a file after a power cut, over many seeds.
fn outcomes(disk: &SimDisk, path: &Path) -> BTreeSet<Option<Vec<u8>>> {
    (0..400).map(|s| disk.power_cut(s).bytes(path)).collect()
}

#[test]
fn synced_writes_survive_and_the_rest_may() {
    let (disk, a) = disk();
    let f = file(&disk, &a);
    f.write_at(&[1; 1024], 0).unwrap();
    f.sync().unwrap();
    f.write_at(&[2; 1024], 0).unwrap();
    assert_eq!(disk.bytes(&a).unwrap(), [2; 1024]);
    let half = |x: u8, y: u8| Some([[x; 512], [y; 512]].concat());
    let expected = BTreeSet::from([half(1, 1), half(1, 2), half(2, 1), half(2, 2)]);
    assert_eq!(outcomes(&disk, &a), expected);
    f.sync().unwrap();
    assert_eq!(outcomes(&disk, &a), BTreeSet::from([half(2, 2)]));
}

#[test]
fn writes_into_one_sector_survive_as_they_stood_at_one_moment() {
    let (disk, a) = disk();
    let f = file(&disk, &a);
    f.write_at(&[0; 512], 0).unwrap();
    f.sync().unwrap();
    f.write_at(&[1], 0).unwrap();
    f.write_at(&[2], 1).unwrap();
    let seen: BTreeSet<_> = outcomes(&disk, &a)
        .into_iter()
        .map(|b| b.unwrap()[..2].to_vec())
        .collect();
    let expected = [vec![0, 0], vec![1, 0], vec![1, 2]];
    assert_eq!(seen, BTreeSet::from(expected));
}

#[test]
fn lengths_are_safe_with_the_sync() {
    let (disk, a) = disk();
    let f = file(&disk, &a);
    f.write_at(&[7; 512], 0).unwrap();
    let seen = outcomes(&disk, &a);
    assert!(seen.contains(&Some(vec![])));
    assert!(seen.contains(&Some(vec![7; 512])));
    f.sync().unwrap();
    f.set_len(0).unwrap();
    f.set_len(512).unwrap();
    assert_eq!(disk.bytes(&a).unwrap(), [0; 512]);
    f.sync().unwrap();
    assert_eq!(outcomes(&disk, &a), BTreeSet::from([Some(vec![0; 512])]));
}

#[test]
fn names_are_safe_once_the_directory_is_synced() {
    let (disk, a) = disk();
    let b = PathBuf::from("/d/b");
    let names = |d: &SimDisk| -> BTreeSet<Vec<PathBuf>> {
        (0..200).map(|s| d.power_cut(s).paths()).collect()
    };
    disk.open(&a, Open::Create).unwrap();
    assert_eq!(names(&disk), BTreeSet::from([vec![], vec![a.clone()]]));
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(names(&disk), BTreeSet::from([vec![a.clone()]]));
    disk.rename(&a, &b).unwrap();
    let either = BTreeSet::from([vec![a.clone()], vec![b.clone()]]);
    assert_eq!(names(&disk), either);
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(names(&disk), BTreeSet::from([vec![b.clone()]]));
    disk.remove(&b).unwrap();
    assert!(disk.open(&b, Open::Read).is_err());
    assert_eq!(names(&disk), BTreeSet::from([vec![], vec![b.clone()]]));
}

#[test]
fn a_failed_sync_is_final() {
    let (disk, a) = disk();
    let f = file(&disk, &a);
    f.write_at(&[0; 1024], 0).unwrap();
    f.sync().unwrap();
    f.write_at(&[1; 512], 0).unwrap();
    disk.inject(Fault::new(Op::Sync, EIO).times(1));
    assert_eq!(f.sync().unwrap_err().raw_os_error(), Some(EIO));
    f.sync().unwrap();
    let old = Some(vec![0; 1024]);
    assert!(
        outcomes(&disk, &a).contains(&old),
        "a later sync made it safe"
    );
    // A new write makes the sector dirty again.
    f.write_at(&[1; 512], 0).unwrap();
    f.sync().unwrap();
    let new = Some([[1; 512], [0; 512]].concat());
    assert_eq!(outcomes(&disk, &a), BTreeSet::from([new]));
}

#[test]
fn a_sync_covers_what_was_written_before_it_began() {
    let (disk, a) = disk();
    let f = file(&disk, &a);
    f.write_at(&[1; 512], 0).unwrap();
    let g = f.clone();
    disk.set_hook(move |op, _| {
        if op == Op::Sync {
            g.write_at(&[2; 512], 512).unwrap();
        }
    });
    f.sync().unwrap();
    disk.clear_hook();
    let seen = outcomes(&disk, &a);
    assert!(seen.iter().all(|b| b.as_ref().unwrap()[..512] == [1; 512]));
    assert!(seen.iter().any(|b| b.as_ref().unwrap().len() == 512));
}

#[test]
fn faults_by_kind_path_and_turn() {
    let (disk, a) = disk();
    let b = PathBuf::from("/d/b");
    let (f, g) = (file(&disk, &a), file(&disk, &b));
    disk.inject(Fault::new(Op::Write, EIO).on("/b").after(1).times(1));
    f.write_at(&[1], 0).unwrap();
    g.write_at(&[1], 0).unwrap();
    f.write_at(&[1], 1).unwrap();
    assert_eq!(g.write_at(&[1], 1).unwrap_err().raw_os_error(), Some(EIO));
    g.write_at(&[1], 1).unwrap();
    assert_eq!(disk.count(Op::Write), 5);
    for (op, run) in [
        (
            Op::Open,
            Box::new(|d: &SimDisk| d.open(Path::new("/d/a"), Open::Read).map(drop))
                as Box<dyn Fn(&SimDisk) -> io::Result<()>>,
        ),
        (
            Op::Create,
            Box::new(|d| d.open(Path::new("/d/c"), Open::Create).map(drop)),
        ),
        (
            Op::Rename,
            Box::new(|d| d.rename(Path::new("/d/a"), Path::new("/d/z"))),
        ),
        (Op::Remove, Box::new(|d| d.remove(Path::new("/d/a")))),
        (Op::List, Box::new(|d| d.list(Path::new("/d")).map(drop))),
        (Op::SyncDir, Box::new(|d| d.sync_dir(Path::new("/d")))),
        (Op::CreateDir, Box::new(|d| d.create_dir(Path::new("/e")))),
    ] {
        disk.heal();
        disk.inject(Fault::new(op, EIO).times(1));
        assert_eq!(run(&disk).unwrap_err().raw_os_error(), Some(EIO), "{op:?}");
        run(&disk).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        if op == Op::Rename {
            disk.rename(Path::new("/d/z"), Path::new("/d/a")).unwrap();
        }
        if op == Op::Remove {
            file(&disk, &a);
        }
    }
}

#[test]
fn a_full_disk_takes_a_part() {
    let (disk, a) = disk();
    let f = file(&disk, &a);
    disk.set_capacity(1000);
    f.write_at(&[1; 600], 0).unwrap();
    f.write_at(&[2; 600], 0).unwrap();
    let e = f.write_at(&[3; 600], 600).unwrap_err();
    assert_eq!(e.raw_os_error(), Some(ENOSPC));
    assert_eq!(disk.used(), 1000);
    assert_eq!(disk.bytes(&a).unwrap()[600..], [3; 400]);
    assert_eq!(f.set_len(2000).unwrap_err().raw_os_error(), Some(ENOSPC));
    disk.remove(&a).unwrap();
    let g = file(&disk, Path::new("/d/b"));
    g.write_at(&[1; 1000], 0).unwrap();
}

#[test]
fn damage_stays() {
    let (disk, a) = disk();
    let f = file(&disk, &a);
    f.write_at(&[0; 600], 0).unwrap();
    f.sync().unwrap();
    assert!(disk.flip_bit(&a, 599, 3));
    assert!(!disk.flip_bit(&a, 600, 3));
    assert!(disk.corrupt(&a, 10, b"xy"));
    let after = disk.power_cut(1).bytes(&a).unwrap();
    assert_eq!((after[599], &after[10..12]), (8, &b"xy"[..]));
    let copy = disk.fork();
    f.write_at(&[9; 600], 0).unwrap();
    assert_eq!(copy.bytes(&a).unwrap(), after);
}

#[test]
fn paths_need_a_directory_and_readers_do_not_write() {
    let (disk, a) = disk();
    assert!(disk.open(Path::new("/none/a"), Open::Create).is_err());
    assert!(disk.list(Path::new("/none")).is_err());
    file(&disk, &a);
    let r = disk.open(&a, Open::Read).unwrap();
    assert!(r.write_at(&[1], 0).is_err());
    disk.create_dir(Path::new("/d/e/f")).unwrap();
    assert_eq!(disk.list(Path::new("/d")).unwrap(), ["a", "e"]);
}

#[test]
fn a_disk_with_a_size_gets_back_the_fronts_of_files() {
    let (disk, dir) = (SimDisk::new(), Path::new("/d"));
    disk.create_dir(dir).unwrap();
    assert_eq!(disk.space(dir).unwrap(), Space::UNKNOWN);
    disk.set_size(10_000);
    let path = dir.join("a");
    let file = disk.open(&path, Open::Create).unwrap();
    file.write_at(&[7; 10_000], 0).unwrap();
    file.sync().unwrap();
    let space = |free| Space {
        total: 10_000,
        free,
    };
    assert_eq!(disk.space(dir).unwrap(), space(0));
    assert!(file.write_at(&[7], 10_000).is_err());
    // Whole blocks are given back, even through a file that is open only for reading.
    let reader = disk.open(&path, Open::Read).unwrap();
    reader.free_front(6000).unwrap();
    reader.free_front(100).unwrap();
    let free = disk.space(dir).unwrap().free;
    assert!((5_900..=6_000).contains(&free), "{free}");
    assert_eq!(file.len().unwrap(), 10_000);
    let bytes = disk.bytes(&path).unwrap();
    assert!(bytes[..free as usize].iter().all(|b| *b == 0));
    assert!(bytes[6000..].iter().all(|b| *b == 7));
    // After a power cut the front is freed or not, and the rest of the file is intact.
    disk.sync_dir(dir).unwrap();
    let mut fronts = Vec::new();
    for seed in 0..20 {
        let bytes = disk.power_cut(seed).bytes(&path).unwrap();
        assert!(bytes[6000..].iter().all(|b| *b == 7));
        fronts.push(bytes[0]);
    }
    assert!(fronts.contains(&0) && fronts.contains(&7));
    disk.inject(Fault::new(Op::Free, EIO));
    assert!(reader.free_front(9000).is_err());
}
