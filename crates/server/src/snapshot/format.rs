//! The bytes of a snapshot. Numbers are little-endian.
//!
//! ```text
//! file  = header (frame | flush)* end
//! header = magic (8 bytes) | version u32 | occasion u32 | the engine's second u32 | Unix second u64
//!          | boot (16 bytes) | seconds since boot u64 | CRC-32 of all that u32
//! frame = length u32, neither 0 nor FLUSH | CRC-32 of the payload u32 | payload: items
//! flush = FLUSH u32: everything before this was flushed meanwhile
//! item  = key length u8 | marks u8 | flags u32 | expiry u32, or 0 | given unique u64, if the marks say so | value length u32 | key | value
//! end   = 0 u32 | CRC-32 of what follows u32 | number of items since the last flush u64 | second of a pending flush u32, or 0
//! ```
//!
//! Expiry and flush are seconds of the engine's clock. The header has the time at which the file
//! was written, by that clock and by the system's: from them the reader computes remaining times to
//! live.
//!
//! Frames are of about [`FRAME`] bytes or one larger item, so that neither side has to hold much more in memory.

use super::moment::Moment;
use relativist_cache::{Cache, Expiry, Hit, MAX_KEY, Marks, New, Sequence, Value};
use std::fmt;
use std::io::{self, Read, Write};

const MAGIC: [u8; 8] = *b"\x89RELSNAP";
const VERSION: u32 = 3;
const HEADER: u32 = 56;
const FRAME: usize = 64 << 10;
const FLUSH: u32 = u32::MAX;

/// Why a snapshot is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(crate) enum Occasion {
    /// The server has ended: no client can change items any more.
    End = 0,
    /// The operator asked for it (SIGUSR2), and clients go on.
    Request = 1,
}

/// What was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Summary {
    /// Items that are in the engine now.
    pub(super) items: u64,
    /// Items that have expired, were flushed, are larger than is allowed now, or found no room.
    pub(super) left_out: u64,
}

/// Why a file is not read.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The operating system does not let us.
    Unreadable(io::Error),
    /// It is something else.
    Foreign,
    /// It is from another version of this program.
    Version(u32),
    /// It ends too early, or goes on after its end.
    Torn,
    /// It is not what was written.
    Corrupt,
    /// It was written while clients went on.
    Outdated,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unreadable(error) => write!(f, "{error}"),
            Refusal::Foreign => f.write_str("it is not a snapshot"),
            Refusal::Version(version) => write!(f, "it has version {version} of the format, not {VERSION}"),
            Refusal::Torn => f.write_str("it is torn: its length is not what it was when it was written"),
            Refusal::Corrupt => f.write_str("it is damaged: a checksum is wrong"),
            Refusal::Outdated => f.write_str(
                "it was written on SIGUSR2, and items that clients changed or deleted since would come back; \
                 --warm-after-crash accepts that",
            ),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Refusal::Torn,
            _ => Refusal::Unreadable(error),
        }
    }
}

/// Writes all items of `engine`, and returns their number. `moment` is the present.
pub(super) fn write(out: &mut impl Write, engine: &Cache, occasion: Occasion, moment: &Moment) -> io::Result<u64> {
    let sequence = engine.sequence();
    out.write_all(&header(occasion, engine.now(), moment))?;

    let mut writer = Writer { out, payload: Vec::new(), items: 0, flushed: sequence.flushed };
    let (mut large, mut cursor) = (Vec::new(), Some(0));
    while let Some(from) = cursor {
        cursor = engine.scan(from, |hit| match hit.value.len() {
            ..FRAME => writer.add(&hit),
            // One at a time: a scan shows many, which together may be too much.
            _ => large.push(hit.key.to_vec()),
        });
        for key in large.drain(..) {
            engine.peek(&key, |hit| writer.add(&hit));
            writer.write_full_frame()?;
        }
        writer.write_full_frame()?;
        writer.follow(engine.sequence())?;
    }
    if !writer.payload.is_empty() {
        writer.write_frame()?;
    }
    let sequence = engine.sequence();
    writer.follow(sequence)?;
    writer.end(sequence.pending_flush)
}

fn header(occasion: Occasion, now: u32, moment: &Moment) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&(occasion as u32).to_le_bytes());
    header.extend_from_slice(&now.to_le_bytes());
    header.extend_from_slice(&moment.wall.to_le_bytes());
    // Zeros mean that the boot is unknown.
    let (boot, since_boot) = moment.boot.unwrap_or_default();
    header.extend_from_slice(&boot);
    header.extend_from_slice(&since_boot.to_le_bytes());
    header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    header
}

struct Writer<'o, W> {
    out: &'o mut W,
    /// Of the next frame.
    payload: Vec<u8>,
    /// Since the last flush.
    items: u64,
    /// What was flushed when that was last asked.
    flushed: u64,
}

impl<W: Write> Writer<'_, W> {
    /// Adds an item. Nothing is written: whoever shows it waits for nobody meanwhile.
    fn add(&mut self, hit: &Hit<'_>) {
        let payload = &mut self.payload;
        payload.push(hit.key.len() as u8);
        payload.push(hit.marks.to_bits());
        payload.extend_from_slice(&hit.flags.to_le_bytes());
        payload.extend_from_slice(&hit.expiry.to_bits().to_le_bytes());
        if hit.marks.has(Marks::GIVEN_UNIQUE) {
            payload.extend_from_slice(&hit.unique.to_le_bytes());
        }
        // Values are at most a gigabyte.
        payload.extend_from_slice(&(hit.value.len() as u32).to_le_bytes());
        payload.extend_from_slice(hit.key);
        payload.extend_from_slice(hit.value);
        self.items += 1;
    }

    fn write_full_frame(&mut self) -> io::Result<()> {
        if self.payload.len() < FRAME { Ok(()) } else { self.write_frame() }
    }

    fn write_frame(&mut self) -> io::Result<()> {
        let length = u32::try_from(self.payload.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.write_checked(length)
    }

    /// Writes what is in the payload, after `length` and its checksum.
    fn write_checked(&mut self, length: u32) -> io::Result<()> {
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&crc32fast::hash(&self.payload).to_le_bytes())?;
        self.out.write_all(&self.payload)?;
        self.payload.clear();
        Ok(())
    }

    /// If everything was flushed since the last time, does so with what is in the file; and with what is in the payload, of which nobody knows
    /// whether it came before or after.
    fn follow(&mut self, sequence: Sequence) -> io::Result<()> {
        if sequence.flushed != self.flushed {
            (self.flushed, self.items) = (sequence.flushed, 0);
            self.payload.clear();
            self.out.write_all(&FLUSH.to_le_bytes())?;
        }
        Ok(())
    }

    fn end(mut self, pending_flush: Option<u32>) -> io::Result<u64> {
        self.payload.extend_from_slice(&self.items.to_le_bytes());
        self.payload.extend_from_slice(&pending_flush.unwrap_or(0).to_le_bytes());
        self.write_checked(0)?;
        Ok(self.items)
    }
}

/// A header that was read.
struct Header {
    is_outdated: bool,
    /// When the file was written, by the clock of the engine that wrote it and by the system's.
    now: u32,
    moment: Moment,
}

impl Header {
    fn read(source: &mut Source<impl Read>) -> Result<Header, Refusal> {
        let mut header = source.bytes(12)?;
        let mut fields = Fields(&header);
        match (fields.array()?, fields.u32()?) {
            (MAGIC, VERSION) => (),
            // The rest of the layout depends on the version.
            (MAGIC, version) => return Err(Refusal::Version(version)),
            _ => return Err(Refusal::Foreign),
        }
        header.extend(source.bytes(HEADER - 12)?);
        let (content, checksum) = header.split_at(HEADER as usize - 4);
        if crc32fast::hash(content).to_le_bytes() != checksum {
            return Err(Refusal::Corrupt);
        }
        let mut fields = Fields(&content[12..]);
        let is_outdated = fields.u32()? != Occasion::End as u32;
        let (now, wall) = (fields.u32()?, fields.u64()?);
        let boot = (fields.array()?, fields.u64()?);
        let boot = Some(boot).filter(|(id, _)| *id != [0; 16]);
        Ok(Header { is_outdated, now, moment: Moment { wall, boot } })
    }
}

/// Converts seconds of the clock of the engine that wrote a file to the reader's clock: a second in
/// the writer's future is as far in the reader's future, less the time that has passed in between.
struct Shift {
    seconds: i64,
}

impl Shift {
    fn of(&self, second: u32) -> u32 {
        // Second 0 means never; for a flush, so does the last one.
        (i64::from(second) + self.seconds).clamp(1, u32::MAX as i64 - 1) as u32
    }

    fn of_expiry(&self, expiry: Expiry) -> Expiry {
        if expiry == Expiry::NEVER { expiry } else { Expiry::from_bits(self.of(expiry.to_bits())) }
    }
}

/// Reads a file of `length` bytes into `engine`, which is empty. If the file is refused, the engine
/// may have some of its items. `moment` is the present.
pub(super) fn read(
    source: impl Read,
    length: u64,
    engine: &Cache,
    accepts_outdated: bool,
    moment: &Moment,
) -> Result<Summary, Refusal> {
    let mut source = Source { source, left: length };
    let header = Header::read(&mut source)?;
    if header.is_outdated && !accepts_outdated {
        return Err(Refusal::Outdated);
    }
    let passed = header.moment.until(moment);
    let shift = Shift { seconds: i64::from(engine.now()) - i64::from(header.now) - i64::from(passed) };
    let (mut summary, mut since_flush) = (Summary { items: 0, left_out: 0 }, 0);
    loop {
        match Fields(&source.bytes(4)?).u32()? {
            0 => break,
            FLUSH => {
                summary.flush(engine);
                since_flush = 0;
            }
            length => {
                let payload = source.checked(length)?;
                let mut fields = Fields(&payload);
                while !fields.0.is_empty() {
                    let is_in = fields.item(|key, new| {
                        let new = New { expiry: shift.of_expiry(new.expiry), ..new };
                        put(engine, key, &new)
                    })?;
                    *(if is_in { &mut summary.items } else { &mut summary.left_out }) += 1;
                    since_flush += 1;
                }
            }
        }
    }
    let end = source.checked(12)?;
    let mut fields = Fields(&end);
    let (items, flush) = (fields.u64()?, fields.u32()?);
    if items != since_flush {
        return Err(Refusal::Corrupt);
    }
    if source.left != 0 {
        return Err(Refusal::Torn);
    }
    if flush != 0 {
        match shift.of(flush) {
            second if second <= engine.now() => summary.flush(engine),
            second => engine.flush_at(second),
        }
    }
    Ok(summary)
}

impl Summary {
    /// Flushes what was read.
    fn flush(&mut self, engine: &Cache) {
        engine.flush(0);
        self.left_out += std::mem::take(&mut self.items);
    }
}

/// Stores an item. False if it is none any more, or there is no place for it.
fn put(engine: &Cache, key: &[u8], new: &New<'_>) -> bool {
    let Value::Whole(value) = new.value else { return false };
    !new.expiry.has_passed(engine.now())
        && key.len() + value.len() <= engine.max_item()
        && engine.put(key, new, |_| (true, ()), |_| ()).is_ok()
}

/// A file that ends where it says.
struct Source<R> {
    source: R,
    /// Bytes.
    left: u64,
}

impl<R: Read> Source<R> {
    fn bytes(&mut self, count: u32) -> Result<Vec<u8>, Refusal> {
        // Before there is memory for them: a length may be anything.
        self.left = self.left.checked_sub(count.into()).ok_or(Refusal::Torn)?;
        let mut bytes = vec![0; count as usize];
        self.source.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn checked(&mut self, count: u32) -> Result<Vec<u8>, Refusal> {
        let checksum = Fields(&self.bytes(4)?).u32()?;
        let payload = self.bytes(count)?;
        if crc32fast::hash(&payload) == checksum { Ok(payload) } else { Err(Refusal::Corrupt) }
    }
}

/// Bytes that are taken apart.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], Refusal> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Refusal::Corrupt)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        Ok(self.take(N)?.try_into().expect("so many were taken"))
    }

    fn u32(&mut self) -> Result<u32, Refusal> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Refusal> {
        self.array().map(u64::from_le_bytes)
    }

    fn item<T>(&mut self, take: impl FnOnce(&[u8], New<'_>) -> T) -> Result<T, Refusal> {
        let [key_len, marks] = self.array()?;
        let (flags, expiry) = (self.u32()?, Expiry::from_bits(self.u32()?));
        let marks = Marks::from_bits(marks);
        let unique = marks.has(Marks::GIVEN_UNIQUE).then(|| self.u64()).transpose()?;
        let value_len = self.u32()?;
        let (key, value) = (self.take(key_len.into())?, self.take(value_len as usize)?);
        if !(1..=MAX_KEY).contains(&key.len()) {
            return Err(Refusal::Corrupt);
        }
        Ok(take(key, New { expiry, unique, marks, ..New::plain(flags, Value::Whole(value)) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_cache::Clock;
    use relativist_cache::{Content, Mode, Store};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const NOW: u32 = 1_800_000_000;

    fn engine(clock: &Arc<Clock>) -> Cache {
        Cache::new(Arc::clone(clock), 16 << 20, 1 << 20).unwrap().with_random_uniques()
    }

    fn set(engine: &Cache, key: &[u8], flags: u32, exptime: i32, value: &[u8]) {
        assert_eq!(engine.store(Mode::Set, key, Content { flags, exptime, value }), Store::Stored);
    }

    /// A few items of all sorts.
    fn varied(clock: &Arc<Clock>) -> Cache {
        let engine = engine(clock);
        set(&engine, b"plain", 0, 0, b"value");
        set(&engine, b"empty", 7, 0, b"");
        set(&engine, b"flags and expiry", u32::MAX, 100, b"x");
        set(&engine, &[b'k'; MAX_KEY], 0, 0, b"the longest key");
        let given = New {
            unique: Some(u64::MAX),
            marks: Marks::STALE | Marks::ENCODED_KEY,
            ..New::plain(3, Value::Whole(b"v"))
        };
        engine.put(b"\0given\xff", &given, |_| (true, ()), |_| ()).unwrap();
        engine
    }

    /// The present, if the system's clock is right.
    fn moment(engine: &Cache) -> Moment {
        Moment { wall: engine.now().into(), boot: None }
    }

    fn snapshot(engine: &Cache) -> Vec<u8> {
        snapshot_at(engine, &moment(engine))
    }

    fn snapshot_at(engine: &Cache, moment: &Moment) -> Vec<u8> {
        let mut file = Vec::new();
        let items = write(&mut file, engine, Occasion::End, moment).unwrap();
        assert_eq!(items, contents(engine).len() as u64);
        file
    }

    fn restored(file: &[u8], clock: &Arc<Clock>) -> Result<(Cache, Summary), Refusal> {
        let moment = Moment { wall: clock.now().into(), boot: None };
        restored_at(file, clock, &moment)
    }

    fn restored_at(file: &[u8], clock: &Arc<Clock>, moment: &Moment) -> Result<(Cache, Summary), Refusal> {
        let engine = engine(clock);
        let summary = read(file, file.len() as u64, &engine, false, moment)?;
        Ok((engine, summary))
    }

    /// All that outlives a restart, by key.
    type Contents = BTreeMap<Vec<u8>, (u32, Expiry, Marks, Vec<u8>)>;

    fn contents(engine: &Cache) -> Contents {
        let (mut all, mut cursor) = (BTreeMap::new(), Some(0));
        while let Some(from) = cursor {
            cursor = engine.scan(from, |hit| {
                all.insert(hit.key.to_vec(), (hit.flags, hit.expiry, hit.marks, hit.value.to_vec()));
            });
        }
        all
    }

    fn unique(engine: &Cache, key: &[u8]) -> u64 {
        let mut unique = 0;
        engine.peek(key, |hit| unique = hit.unique);
        unique
    }

    #[test]
    fn items_come_back_as_they_were() {
        let clock = Arc::new(Clock::new(NOW));
        let before = varied(&clock);
        let (after, summary) = restored(&snapshot(&before), &clock).unwrap();
        assert_eq!(contents(&after), contents(&before));
        assert_eq!(summary, Summary { items: 5, left_out: 0 });
        assert_eq!(unique(&after, b"\0given\xff"), u64::MAX);
        // Both begin at random, with 31 bits.
        let [old, new] = [&before, &after].map(|engine| unique(engine, b"plain"));
        assert!(old.abs_diff(new) > 1_000, "no client knows it from before: {old}, {new}");
    }

    #[test]
    fn many_frames_and_large_values() {
        let clock = Arc::new(Clock::new(NOW));
        let before = engine(&clock);
        (0..3_000)
            .for_each(|n: u32| set(&before, format!("key {n}").as_bytes(), n, 0, &vec![n as u8; n as usize % 300]));
        set(&before, b"large", 0, 0, &vec![b'x'; 1 << 19]);
        let file = snapshot(&before);
        assert!(file.len() > 5 * FRAME);
        let (after, _) = restored(&file, &clock).unwrap();
        assert_eq!(contents(&after), contents(&before));
    }

    #[test]
    fn no_part_of_a_file_is_taken_for_the_whole() {
        let clock = Arc::new(Clock::new(NOW));
        let file = snapshot(&varied(&clock));
        for length in 0..file.len() {
            let refusal = restored(&file[..length], &clock).map(|(_, summary)| summary).expect_err("a part");
            assert!(matches!(refusal, Refusal::Torn), "{length}: {refusal}");
        }
        let longer = [file.as_slice(), b"\0"].concat();
        assert!(matches!(restored(&longer, &clock), Err(Refusal::Torn)));
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let clock = Arc::new(Clock::new(NOW));
        let mut file = snapshot(&varied(&clock));
        for at in 0..file.len() {
            file[at] ^= 0x20;
            assert!(restored(&file, &clock).is_err(), "{at}");
            file[at] ^= 0x20;
        }
        assert!(matches!(restored(&[b'x'; 100], &clock), Err(Refusal::Foreign)));
    }

    #[test]
    fn other_versions_are_told() {
        let clock = Arc::new(Clock::new(NOW));
        let mut file = snapshot(&engine(&clock));
        file[8] = 9;
        let refusal = restored(&file, &clock).map(|(_, summary)| summary).unwrap_err();
        assert_eq!(refusal.to_string(), "it has version 9 of the format, not 3");
    }

    #[test]
    fn what_expires_meanwhile_stays_out() {
        let clock = Arc::new(Clock::new(NOW));
        let file = snapshot(&varied(&clock));
        clock.set(NOW + 99);
        assert_eq!(restored(&file, &clock).unwrap().1.left_out, 0);
        clock.set(NOW + 100);
        let (after, summary) = restored(&file, &clock).unwrap();
        assert_eq!(summary, Summary { items: 4, left_out: 1 });
        assert!(!contents(&after).contains_key(b"flags and expiry".as_slice()));
    }

    #[test]
    fn a_flush_to_come_still_comes() {
        let clock = Arc::new(Clock::new(NOW));
        let before = varied(&clock);
        before.flush(50);
        let file = snapshot(&before);
        let (after, _) = restored(&file, &clock).unwrap();
        assert_eq!(contents(&after).len(), 5);
        clock.set(NOW + 50);
        assert_eq!(contents(&after).len(), 0, "it came in the new process");
        assert_eq!(restored(&file, &clock).unwrap().1, Summary { items: 0, left_out: 5 }, "or between the two");
    }

    /// The writer's clock was wrong when it started, which the system has found out since.
    #[test]
    fn what_is_left_of_a_life_does_not_depend_on_the_writers_clock() {
        for wrong in [-1_000_000, -1, 0, 1, 1_000_000] {
            let clock = Arc::new(Clock::new(NOW.saturating_add_signed(wrong)));
            let before = varied(&clock);
            before.flush(200);
            let file = snapshot_at(&before, &Moment { wall: NOW.into(), boot: None });
            let clock = Arc::new(Clock::new(NOW + 30));
            let (after, summary) = restored(&file, &clock).unwrap();
            assert_eq!(summary, Summary { items: 5, left_out: 0 }, "{wrong}");
            clock.set(NOW + 99);
            assert_eq!(contents(&after).len(), 5, "{wrong}");
            clock.set(NOW + 100);
            assert_eq!(contents(&after).len(), 4, "{wrong}");
            clock.set(NOW + 199);
            assert_eq!(contents(&after).len(), 4, "{wrong}");
            clock.set(NOW + 200);
            assert_eq!(contents(&after).len(), 0, "{wrong}");
        }
    }

    /// As long as the system goes on, it knows how much time has passed.
    #[test]
    fn what_is_left_of_a_life_does_not_depend_on_the_wall_clock_within_a_boot() {
        for (wall, passed, is_left) in [(NOW - 5_000, 99, true), (NOW + 5_000, 99, true), (NOW + 1, 100, false)] {
            let clock = Arc::new(Clock::new(NOW));
            let file = snapshot_at(&varied(&clock), &Moment { wall: NOW.into(), boot: Some(([1; 16], 70)) });
            let clock = Arc::new(Clock::new(wall));
            let now = Moment { wall: wall.into(), boot: Some(([1; 16], 70 + passed)) };
            let (after, _) = restored_at(&file, &clock, &now).unwrap();
            assert_eq!(contents(&after).contains_key(b"flags and expiry".as_slice()), is_left, "{wall}");
        }
    }

    #[test]
    fn what_was_written_while_clients_went_on_is_refused_unless_accepted() {
        let clock = Arc::new(Clock::new(NOW));
        let before = varied(&clock);
        let (mut file, now) = (Vec::new(), moment(&before));
        write(&mut file, &before, Occasion::Request, &now).unwrap();
        assert!(matches!(restored(&file, &clock), Err(Refusal::Outdated)));
        let after = engine(&clock);
        assert_eq!(read(file.as_slice(), file.len() as u64, &after, true, &now).unwrap().items, 5);
    }

    /// Items keep 48 bits of their numbers. Restarts must not use them up.
    #[test]
    fn a_flush_after_thousands_of_restarts_takes_only_what_came_before() {
        let clock = Arc::new(Clock::new(NOW));
        let mut file = snapshot(&varied(&clock));
        for _ in 0..4_200 {
            file = snapshot(&restored(&file, &clock).unwrap().0);
        }
        let (engine, _) = restored(&file, &clock).unwrap();
        engine.flush(0);
        set(&engine, b"later", 0, 0, b"x");
        assert_eq!(contents(&engine).into_keys().collect::<Vec<_>>(), [b"later"]);
    }

    /// Beyond what the protocol's signed times can say.
    #[test]
    fn a_flush_to_come_after_2038_still_comes() {
        let late = i32::MAX as u32 + 1_000;
        let clock = Arc::new(Clock::new(late));
        let before = varied(&clock);
        before.flush(50);
        let (after, _) = restored(&snapshot(&before), &clock).unwrap();
        clock.set(late + 49);
        assert_eq!(contents(&after).len(), 5);
        clock.set(late + 50);
        assert_eq!(contents(&after).len(), 0);
    }

    /// Takes what is written, and does something to the engine before one of the calls.
    struct Meddler<F> {
        file: Vec<u8>,
        calls: usize,
        at: usize,
        meddle: F,
    }

    impl<F: FnMut()> Write for Meddler<F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.calls == self.at {
                (self.meddle)();
            }
            self.calls += 1;
            self.file.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_flushed_while_it_is_written_does_not_come_back() {
        let written = |at, exptime| {
            let clock = Arc::new(Clock::new(NOW));
            let before = engine(&clock);
            (0..2_000).for_each(|n: u32| set(&before, &n.to_le_bytes(), 0, 0, &[0; 200]));
            set(&before, b"large", 0, 0, &vec![0; 2 * FRAME]);
            let meddle = || {
                before.flush(exptime);
                set(&before, b"later", 0, 0, b"");
            };
            let mut meddler = Meddler { file: Vec::new(), calls: 0, at, meddle };
            let items = write(&mut meddler, &before, Occasion::End, &moment(&before)).unwrap();
            let (after, summary) = restored(&meddler.file, &clock).unwrap();
            assert_eq!(summary.items, items);
            (contents(&after), meddler.calls, after, clock)
        };
        let (all, calls, ..) = written(usize::MAX, 0);
        assert_eq!((all.len(), calls > 20), (2_001, true), "{calls} calls");
        // The last three calls write the end. There are some more or less from one engine to the next: each hashes differently.
        let is_before_end = |at, calls| at + 3 < calls;
        for at in 0..calls {
            let (left, calls, ..) = written(at, 0);
            let is_gone = left.keys().all(|key| key == b"later");
            assert!(is_gone || !is_before_end(at, calls), "{at} of {calls}: {} items are back", left.len());
            let (left, calls, after, clock) = written(at, 9);
            assert!(left.len() >= 2_001, "{at}");
            clock.set(NOW + 9);
            let is_gone = contents(&after).is_empty();
            assert!(is_gone || !is_before_end(at, calls), "{at} of {calls}: a flush to come is forgotten");
        }
    }

    #[test]
    fn what_has_no_place_any_more_is_left_out() {
        let clock = Arc::new(Clock::new(NOW));
        let before = engine(&clock);
        set(&before, b"small", 0, 0, b"x");
        set(&before, b"large", 0, 0, &[0; 5_000]);
        let file = snapshot(&before);
        let after = Cache::new(Arc::clone(&clock), 16 << 20, 4_000).unwrap();
        let summary = read(file.as_slice(), file.len() as u64, &after, false, &moment(&before));
        assert_eq!(summary.unwrap(), Summary { items: 1, left_out: 1 });
    }
}
