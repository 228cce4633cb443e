//! Entries that the lease on their directory covers; and whatever operation comes.

use super::*;

/// Goal: attributes of an entry are covered while nobody writes to it and nothing is to come of it: whoever opens it for
/// writing has those who know them told, once, and not with each commit; a repeated open of which a restart took the memory,
/// and a seal by a stranger, as well.
#[test]
fn entries_are_covered_until_somebody_writes() {
    let (mut bed, _, mut other, dir) = bed();
    let (old, layout) = bed.grown("f", 1 << 20);
    bed.close(ME, old, 9);
    other.obey(&mut bed);
    let covered = |bed: &mut Bed| {
        let list = bed
            .call(OTHER, List { dir: Ino::ROOT, after: 0, max: 9, with_attr: true, as_told: None })
            .unwrap();
        let flags = |entry: &DirEntry| entry.attr.as_ref().map_or(0, |attr| attr.flags);
        let of: BTreeMap<Ino, bool> =
            list.entries.iter().map(|entry| (entry.ino, flags(entry) & Attr::COVERED != 0)).collect();
        assert!(!of[&dir], "a directory has a lease of its own");
        of[&old]
    };
    let told = |other: &mut Ear, bed: &mut Bed| {
        let told = other.hear(bed);
        other.confirm(bed, &told);
        told.iter().map(|recall| (recall.ino, recall.kind, recall.entry)).collect::<Vec<_>>()
    };
    let entry = (Ino::ROOT, RecallKind::Entry, Some(old));
    assert!(covered(&mut bed));
    let open = |open_seq| Open {
        ino: old,
        mode: OpenMode::Write,
        truncate: false,
        shared: false,
        kill_suidgid: false,
        open_seq,
    };
    let to = bed.send(ME, open(10));
    assert!(!bed.replies.contains_key(&to));
    assert_eq!(told(&mut other, &mut bed), [entry]);
    assert!(bed.replies.contains_key(&to) && !covered(&mut bed));
    bed.call(ME, commit_of(&bed, old, &layout)).unwrap();
    assert_eq!(bed.truncate(ME, old, 5).unwrap().size, 5);
    assert!(told(&mut other, &mut bed).is_empty());
    bed.close(ME, old, 11);
    assert!(covered(&mut bed));
    let to = bed.send(ME, ChangeAttr { ino: old, set: SetAttr { size: Some(0), ..SetAttr::default() } });
    assert_eq!(told(&mut other, &mut bed), [entry]);
    assert!(bed.replies[&to].1.is_ok());
    // The answer to an open that makes the content anew is lost, and asked for once more.
    assert!(covered(&mut bed));
    let create =
        Create { open: Some(OpenMode::Write), open_seq: 12, truncate: true, ..create(Ino::ROOT, "f") };
    bed.send(ME, create.clone());
    assert_eq!(told(&mut other, &mut bed), [entry]);
    bed.close(ME, old, 13);
    assert!(covered(&mut bed));
    let to = bed.resend(ME, Create { open_seq: 14, ..create });
    assert!(!bed.replies.contains_key(&to));
    assert_eq!(told(&mut other, &mut bed), [entry]);
    assert!(bed.replies[&to].1.is_ok() && !covered(&mut bed));
    bed.check();
}

/// Goal: who alone has a file open for writing, and wrote to no chunks yet, knows its attributes, from the answer that made it
/// on, and is told before others change them or open it too; others know nothing of it, and are told nothing.
#[test]
fn who_alone_writes_knows_the_entry() {
    let (mut bed, mut mine, mut other, dir) = bed();
    let mut third = Ear::new(&mut bed, THIRD);
    bed.call(ME, find(dir, "f")).unwrap_err();
    let wish = Create { open: Some(OpenMode::Write), open_seq: 5, ..create(dir, "f") };
    let to = bed.send(OTHER, wish);
    mine.obey(&mut bed);
    assert!(granted(&bed, to).contains(&dir));
    let told = bed.replies[&to].0.touched.clone().unwrap();
    let file = told.iter().find(|attr| attr.ino != dir).unwrap().clone();
    assert!(file.flags & Attr::COVERED != 0);
    let covered = |bed: &mut Bed, who| {
        let attr = bed.call(who, find(dir, "f")).unwrap().attr.unwrap();
        attr.flags & Attr::COVERED != 0
    };
    assert!(covered(&mut bed, OTHER) && !covered(&mut bed, ME) && !covered(&mut bed, THIRD));
    let write = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let to = bed.send(OTHER, ChangeAttr { ino: file.ino, set: write(9) });
    assert!(bed.replies.contains_key(&to) && mine.hear(&mut bed).is_empty(), "nobody else knew");
    let entry = |told: &[Recall]| told.iter().map(|of| (of.ino, of.entry)).collect::<Vec<_>>();
    let open = Open {
        ino: file.ino,
        mode: OpenMode::Write,
        truncate: false,
        shared: false,
        kill_suidgid: false,
        open_seq: 6,
    };
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    for message in [MetaRequest::from(ChangeAttr { ino: file.ino, set: mode.clone() }), open.into()] {
        assert!(covered(&mut bed, OTHER));
        let to = bed.send(ME, message);
        let told = other.hear(&mut bed);
        assert!(!bed.replies.contains_key(&to));
        assert_eq!(entry(&told), [(dir, Some(file.ino))]);
        other.confirm(&mut bed, &told);
        assert!(bed.replies[&to].1.is_ok());
    }
    assert!(third.hear(&mut bed).is_empty());
    assert!(!covered(&mut bed, OTHER) && !covered(&mut bed, ME), "both write");
    bed.close(ME, file.ino, 7);
    assert!(covered(&mut bed, OTHER));
    // What it writes to chunks may be more than it tells.
    bed.call(OTHER, Grow { like: None, ino: file.ino, end: 1 << 20 }).unwrap();
    assert!(!covered(&mut bed, OTHER));
    let to = bed.send(ME, ChangeAttr { ino: file.ino, set: mode });
    assert!(bed.replies.contains_key(&to) && other.hear(&mut bed).is_empty());
    bed.check();
}

/// Goal: a repeated open of which a restart took the memory, and a report behind the grace period, have those told who were
/// lent the directory since, also while changes wait for what the term before had lent.
#[test]
fn what_is_open_again_is_told_while_changes_wait() {
    let (mut bed, _, mut other, _) = bed();
    let open = Create { open: Some(OpenMode::Write), open_seq: 12, ..create(Ino::ROOT, "f") };
    let to = bed.send(ME, open.clone());
    other.obey(&mut bed);
    let file = bed.reply::<OpenReply>(to).unwrap().unwrap().attr.ino;
    bed.restart(&[1, 2]);
    bed.report(ME);
    bed.report(OTHER);
    let mut other = Ear::new(&mut bed, OTHER);
    let found = bed.call(OTHER, find(Ino::ROOT, "f")).unwrap();
    assert!(found.attr.unwrap().flags & Attr::COVERED != 0);
    let waits = bed.send(Who { slot: 1, ..ME }, create(Ino::ROOT, "new"));
    let to = bed.resend(ME, open);
    let told = other.hear(&mut bed);
    assert_eq!(told.iter().map(|recall| recall.entry).collect::<Vec<_>>(), [Some(file)]);
    assert!(!bed.replies.contains_key(&to));
    other.confirm(&mut bed, &told);
    assert!(bed.replies[&to].1.is_ok() && !bed.replies.contains_key(&waits));
    bed.check();
}

/// Goal: what is renamed or linked is taken back by its inode too, from those who know it by the directory that it leaves.
#[test]
fn what_moves_is_taken_back_where_it_was() {
    let (mut bed, _, mut other, dir) = bed();
    let to_dir = bed.mkdir(Ino::ROOT, "e");
    other.obey(&mut bed);
    for at in 0..3 {
        let text = format!("f{at}");
        let ino = make(&mut bed, &mut other, dir, &text);
        bed.call(OTHER, GetAttr { ino: to_dir }).unwrap();
        let found = bed.call(OTHER, find(dir, &text)).unwrap();
        assert!(found.attr.unwrap().flags & Attr::COVERED != 0);
        let message: MetaRequest = match at {
            0 => rename(dir, &text, to_dir, &text).into(),
            1 => Link { ino, parent: to_dir, name: name(&text) }.into(),
            _ => Unlink { parent: dir, name: name(&text) }.into(),
        };
        let to = bed.send(ME, message);
        let told = other.hear(&mut bed);
        let mut of: Vec<_> =
            told.iter().map(|recall| (recall.ino, recall.kind as u8, recall.entry)).collect();
        of.sort_unstable();
        let (named, entry) = (RecallKind::Name as u8, RecallKind::Entry as u8);
        let expected = match at {
            0 => vec![(dir, named, Some(ino)), (to_dir, named, None)],
            1 => vec![(dir, entry, Some(ino)), (to_dir, named, None)],
            _ => vec![(dir, named, Some(ino))],
        };
        assert_eq!(of, expected);
        other.confirm(&mut bed, &told);
        assert!(bed.replies[&to].1.is_ok());
    }
    bed.check();
}

/// What a holder of a lease on a directory knows: its attributes, its listing, its parent, and the attributes of the entries
/// that the lease covers.
#[derive(Debug, PartialEq)]
struct Known {
    attr: Attr,
    names: Vec<(Name, Ino)>,
    parent: Ino,
    covered: BTreeMap<Ino, Attr>,
}

impl Known {
    /// `None`: it is not lent.
    fn new(bed: &mut Bed, dir: Ino) -> Option<Self> {
        let attr = bed.call(OTHER, GetAttr { ino: dir }).ok()?.attr;
        let to = bed.send(OTHER, List { dir, after: 0, max: 1_000, with_attr: true, as_told: None });
        let list = bed.reply::<ListReply>(to)?.ok()?;
        if !granted(bed, to).contains(&dir) {
            return None;
        }
        let names = list.entries.iter().map(|entry| (entry.name.clone(), entry.ino)).collect();
        let attrs = list.entries.into_iter().filter_map(|entry| entry.attr);
        let covered = attrs.filter(|attr| attr.flags & Attr::COVERED != 0).map(|attr| (attr.ino, attr));
        Some(Self { attr, names, parent: list.parent, covered: covered.collect() })
    }

    /// The same as somebody sees it who has no lease.
    fn seen(&self, bed: &mut Bed, dir: Ino) -> Option<Self> {
        let attr = bed.admin(GetAttr { ino: dir }).ok()?.attr;
        let list = bed.admin(List { dir, after: 0, max: 1_000, with_attr: false, as_told: None }).ok()?;
        let names = list.entries.into_iter().map(|entry| (entry.name, entry.ino)).collect();
        let mut covered = BTreeMap::new();
        for ino in self.covered.keys() {
            let mut attr = bed.admin(GetAttr { ino: *ino }).ok()?.attr;
            attr.flags |= Attr::COVERED;
            covered.insert(*ino, attr);
        }
        Some(Self { attr, names, parent: list.parent, covered })
    }
}

fn any_change(draw: &mut impl FnMut(u64) -> u64, dirs: &[Ino], files: &[Ino], step: u64) -> MetaRequest {
    let mut at = |of: &[Ino]| of[draw(of.len() as u64) as usize];
    let (from, to, file) = (at(dirs), at(dirs), at(files));
    let (a, b) = (format!("n{}", draw(5)), format!("n{}", draw(5)));
    let set = |ino, set| ChangeAttr { ino, set };
    match draw(15) {
        0 | 1 => create(from, &a).into(),
        2 => node(from, &a, Kind::Fifo).into(),
        3 => Unlink { parent: from, name: name(&a) }.into(),
        4 => RemoveDir { parent: from, name: name(&a) }.into(),
        5 => rename(from, &a, to, &b).into(),
        6 => Rename { exchange: draw(2) == 0, no_replace: true, ..rename(from, &a, to, &b) }.into(),
        7 => set(from, SetAttr { uid: Some(draw(3) as u32), ..SetAttr::default() }).into(),
        8 => MakeNode { mode: 0o755, ..node(from, &a, Kind::Dir) }.into(),
        9 => set(file, SetAttr { mode: Some(draw(8) as u32), ..SetAttr::default() }).into(),
        10 => set(file, SetAttr { size: Some(draw(90)), ..SetAttr::default() }).into(),
        11 => Link { ino: file, parent: to, name: name(&b) }.into(),
        12 => Close { opens: vec![Closed { ino: file, open_seq: 2 * step + 1 }] }.into(),
        13 => Open {
            ino: file,
            mode: if draw(2) == 0 { OpenMode::Read } else { OpenMode::Write },
            truncate: false,
            shared: false,
            kill_suidgid: false,
            open_seq: 2 * step,
        }
        .into(),
        _ => Create {
            open: Some(OpenMode::Write),
            open_seq: 2 * step,
            truncate: draw(2) == 0,
            ..create(from, &a)
        }
        .into(),
    }
}

/// Goal: whatever operation comes, nothing that others know by a lease is seen to change before they were told.
#[test]
fn no_operation_changes_what_others_use() {
    let (mut bed, _, mut other, dir) = bed();
    let mut state = 7_u64;
    let mut draw = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let (mut dirs, mut files) = (vec![Ino::ROOT, dir], vec![bed.lookup(dir, "old").unwrap()]);
    let (mut took_back, mut covered) = (0, 0);
    for step in 0..700 {
        let mut known = BTreeMap::new();
        dirs.retain(|dir| bed.attr(*dir).is_ok_and(|attr| attr.nlink > 0));
        files.retain(|ino| bed.attr(*ino).is_ok());
        files.push(make(&mut bed, &mut other, dirs[0], &format!("keeps{step}")));
        for dir in &dirs {
            known.extend(Known::new(&mut bed, *dir).map(|known| (*dir, known)));
        }
        assert!(other.hear(&mut bed).is_empty());
        // What changes too often is lent to nobody.
        bed.now.0 += 2_000;
        let message = any_change(&mut draw, &dirs, &files, step);
        let text = format!("{step}: {message:?}");
        let to = bed.send(ME, message);
        let mut told = other.hear(&mut bed);
        for (dir, known) in &known {
            assert_eq!(
                known.seen(&mut bed, *dir).as_ref(),
                Some(known),
                "{text}, before {told:?} was confirmed"
            );
            covered += known.covered.len();
        }
        took_back += told.len();
        while !told.is_empty() {
            assert!(!bed.replies.contains_key(&to), "{text}");
            other.confirm(&mut bed, &told);
            told = other.hear(&mut bed);
        }
        let reply = bed.replies[&to].1.clone();
        if let Ok(body) = reply
            && let Ok(entry) = EntryReply::from_bytes(&body)
            && entry.kind == Kind::Dir
            && dirs.len() < 6
        {
            dirs.push(entry.ino);
        }
        if step > 20 {
            let oldest = name(&format!("keeps{}", step - 20));
            let _ = change(&mut bed, &mut other, Unlink { parent: Ino::ROOT, name: oldest });
        }
    }
    assert!(took_back > 200 && covered > 1_500, "{took_back} {covered}");
    assert!(bed.server.gauges().contains(&("leases_broken", 0)));
    bed.check();
}

/// Goal: what somebody wrote to is covered when it is durable that he does not any more: a power cut has him write again, and
/// changes of what is written to wait for nobody then.
#[test]
fn what_was_written_is_covered_when_that_is_durable() {
    let (mut bed, _, _, _) = bed();
    let (file, _) = bed.grown("f", 1 << 20);
    bed.open(ME, file, OpenMode::Write, 8).unwrap();
    bed.auto_sync = false;
    bed.close(ME, file, 9);
    let covered = |bed: &mut Bed| {
        let attr = bed.call(OTHER, find(Ino::ROOT, "f")).unwrap().attr.unwrap();
        attr.flags & Attr::COVERED != 0
    };
    assert!(!covered(&mut bed));
    bed.sync();
    assert!(covered(&mut bed));
    bed.check();
}

/// A mount reports that it has these open for writing.
fn report_of(inos: &[Ino]) -> Reclaim {
    let open = |ino: &Ino| Reclaimed { ino: *ino, mode: OpenMode::Write, open_seq: 10, reserved: 0 };
    Reclaim { opens: inos.iter().map(open).collect(), locks: vec![], last: true, term: None, holds: None }
}

/// Goal: a file that somebody was about to open for writing when the term ended, and reports as open, may be known by what the
/// last term has lent: changes of it wait as those of any other, and only who had written to it goes on.
#[test]
fn a_report_makes_nobody_a_writer_of_before() {
    let (mut bed, _, mut other, _) = bed();
    let (written, written_layout) = bed.grown("written", 1 << 20);
    let (known, layout) = bed.grown("known", 1 << 20);
    bed.close(ME, known, 9);
    other.obey(&mut bed);
    bed.send(OTHER, find(Ino::ROOT, "known"));
    bed.restart(&[1, 2]);
    bed.send_as(ME, ShardId(0), 0, report_of(&[written, known]).into());
    bed.call(ME, commit_of(&bed, written, &written_layout)).unwrap();
    let to = bed.send(Who { slot: 1, ..ME }, commit_of(&bed, known, &layout));
    bed.tick(PATIENCE - 100);
    assert!(!bed.replies.contains_key(&to));
    bed.tick(100);
    assert!(bed.replies.contains_key(&to));
    bed.check();
}

/// Goal: nor does it in the next term, which begins while what was lent before the last one may be in use. Who opens the
/// file when that is over counts in the term after.
#[test]
fn a_report_makes_nobody_a_writer_for_the_next_term() {
    let (mut bed, _, mut other, _) = bed();
    let (known, layout) = bed.grown("known", 1 << 20);
    bed.close(ME, known, 9);
    other.obey(&mut bed);
    bed.send(OTHER, find(Ino::ROOT, "known"));
    let lane = Who { slot: 1, ..ME };
    let mut to = 0;
    for _ in 0..2 {
        bed.restart(&[1, 2]);
        bed.send_as(ME, ShardId(0), 0, report_of(&[known]).into());
        to = bed.send(lane, commit_of(&bed, known, &layout));
        bed.tick(PATIENCE - 100);
        assert!(!bed.replies.contains_key(&to));
    }
    bed.tick(100);
    assert!(bed.replies[&to].1.is_ok());
    bed.close(ME, known, 11);
    bed.open(ME, known, OpenMode::Write, 12).unwrap();
    bed.restart(&[1, 2]);
    bed.call(lane, commit_of(&bed, known, &layout)).unwrap();
    let to = bed.send(lane, create(Ino::ROOT, "new"));
    assert!(!bed.replies.contains_key(&to), "others wait");
    bed.check();
}

/// Goal: a file that somebody wrote to when the term began is lent once he has closed it, also while changes wait: from
/// then on its changes wait as well.
#[test]
fn what_is_closed_while_changes_wait_is_lent() {
    let (mut bed, _, _, _) = bed();
    let (file, _) = bed.grown("f", 1 << 20);
    bed.restart(&[1, 2]);
    bed.send_as(ME, ShardId(0), 0, report_of(&[file]).into());
    bed.report(OTHER);
    let _other = Ear::new(&mut bed, OTHER);
    let mode = |mode| ChangeAttr { ino: file, set: SetAttr { mode: Some(mode), ..SetAttr::default() } };
    bed.call(ME, mode(0o600)).unwrap();
    bed.close(ME, file, 11);
    let found = bed.call(OTHER, find(Ino::ROOT, "f")).unwrap();
    assert!(found.attr.unwrap().flags & Attr::COVERED != 0);
    let to = bed.send(ME, mode(0o640));
    assert!(!bed.replies.contains_key(&to), "somebody knows it");
    // Nobody confirms anything.
    bed.end_hold();
    bed.end_hold();
    assert!(bed.replies[&to].1.is_ok());
    bed.check();
}

/// Goal: who opens a file for reading again before he has told that he writes to it no more says that with the open: from then on
/// whoever looks knows the entry, he as well. A repetition of that, or a later one, closes nothing.
#[test]
fn an_open_says_that_the_writer_is_done() {
    let (mut bed, _, _, _) = bed();
    let mut other = Ear::new(&mut bed, OTHER);
    let (file, layout) = bed.grown("f", 1 << 20);
    bed.call(ME, commit_of(&bed, file, &layout)).unwrap();
    let covered = |bed: &mut Bed, who| {
        let attr = bed.call(who, find(Ino::ROOT, "f")).unwrap().attr.unwrap();
        attr.flags & Attr::COVERED != 0
    };
    bed.open(ME, file, OpenMode::Read, 20).unwrap();
    assert!(!covered(&mut bed, ME) && !covered(&mut bed, OTHER), "it may write");
    bed.closing = Some(Closed { ino: file, open_seq: 21 });
    bed.open(ME, file, OpenMode::Read, 22).unwrap();
    assert!(covered(&mut bed, ME) && covered(&mut bed, OTHER));
    let to = bed.send(ME, Open { ino: file, ..write_open(23) });
    other.obey(&mut bed);
    assert!(bed.replies[&to].1.is_ok());
    bed.closing = Some(Closed { ino: file, open_seq: 21 });
    bed.open(ME, file, OpenMode::Read, 22).unwrap();
    assert!(!covered(&mut bed, OTHER), "it writes again");
    bed.check();
}

fn write_open(open_seq: u64) -> Open {
    Open { ino: Ino(0), mode: OpenMode::Write, truncate: false, shared: false, kill_suidgid: false, open_seq }
}
