//! The bytes of a snapshot. Numbers are little-endian.
//!
//! ```text
//! file  = header cache* 0 u32
//! cache = TENANT u32 | CRC-32 of the name u32 | name length u32 | name | (frame | flush)* end
//! header = magic (8 bytes) | version u32 | occasion u32 | the cache's second u32 | Unix second u64
//!          | boot (16 bytes) | seconds since boot u64 | CRC-32 of all that u32
//! frame = length u32, neither 0, FLUSH nor TENANT | CRC-32 of the payload u32 | payload: items
//! flush = FLUSH u32: everything before this was flushed meanwhile
//! item  = key length u8 | marks u8 | flags u32 | expiry u32, or 0 | given cas u64, if the marks say so | value length u32 | key | value
//! end   = 0 u32 | CRC-32 of what follows u32 | number of items since the last flush u64 | second of a pending flush u32, or 0
//! ```
//!
//! Expiry and flush are seconds of the cache's clock. The header has the time at which the file
//! was written, by that clock and by the system's: from them the reader computes remaining times to
//! live.
//!
//! The name is that of a tenant, and empty for the users without one.
//!
//! The version is 4. Version 3 has no tenants: its file is `header (frame | flush)* end`. A change
//! of the format increases the version. From the first release on, a new version
//! must also read the files of older ones: `format/fixtures` has a file of each.
//!
//! Frames have about [`FRAME`] bytes, or one larger item, so that neither side has to hold much
//! more in memory.

use super::moment::Moment;
use relativist_store::{Cache, Expiry, Hit, MAX_KEY, Marks, New, Sequence, Value};
use std::fmt;
use std::io::{self, Read, Write};

const MAGIC: [u8; 8] = *b"\x89RELSNAP";
const VERSION: u32 = 4;
/// The version before there were tenants.
const VERSION_WITHOUT_TENANTS: u32 = 3;
const HEADER: u32 = 56;
const FRAME: usize = 64 << 10;
const FLUSH: u32 = u32::MAX;
const TENANT: u32 = u32::MAX - 1;
/// The longest name of a tenant.
const MAX_NAME: u32 = 255;
/// The longest payload in a stream: frames with an item of the largest size are shorter.
const MAX_FRAME: u32 = (1 << 30) + (1 << 20);

/// Why a snapshot is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(crate) enum Occasion {
    /// The server has stopped: no client can change items any more.
    End = 0,
    /// The operator asked for it (SIGUSR2), and clients are still served.
    Request = 1,
}

/// The result of reading.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Summary {
    /// Items in the cache after reading.
    pub(super) items: u64,
    /// Items that have expired, were flushed, are larger than the limit allows now, or found no
    /// room.
    pub(super) left_out: u64,
}

/// Why a file is not read.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The file cannot be read.
    Unreadable(io::Error),
    /// The file is not a snapshot.
    Foreign,
    /// The file has this other version of the format.
    Version(u32),
    /// The file ends too early, or continues after its end.
    Torn,
    /// A checksum does not match.
    Corrupt,
    /// The file was written while clients were served, and is outdated.
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

/// Writes all items of `caches`, each with the name of its tenant, and returns their number. All
/// have the same clock. `moment` is the current time.
pub(super) fn write(
    out: &mut impl Write,
    caches: &[(&str, &Cache)],
    occasion: Occasion,
    moment: &Moment,
) -> io::Result<u64> {
    let now = caches.first().map_or(0, |(_, cache)| cache.now());
    out.write_all(&header(occasion, now, moment))?;
    let mut items = 0;
    for (name, cache) in caches {
        out.write_all(&TENANT.to_le_bytes())?;
        out.write_all(&crc32fast::hash(name.as_bytes()).to_le_bytes())?;
        out.write_all(&(name.len() as u32).to_le_bytes())?;
        out.write_all(name.as_bytes())?;
        items += write_cache(out, cache)?;
    }
    out.write_all(&0_u32.to_le_bytes())?;
    Ok(items)
}

fn write_cache(out: &mut impl Write, cache: &Cache) -> io::Result<u64> {
    let sequence = cache.sequence();
    let mut writer = Writer { out, payload: Vec::new(), items: 0, flushed: sequence.flushed };
    let (mut large, mut cursor) = (Vec::new(), Some(0));
    while let Some(from) = cursor {
        cursor = cache.scan(from, |hit| match hit.value.len() {
            ..FRAME => writer.add(&hit),
            // Large items are written one at a time, because those of one scan may be too large
            // together.
            _ => large.push(hit.key.to_vec()),
        });
        for key in large.drain(..) {
            cache.peek(&key, |hit| writer.add(&hit));
            writer.write_full_frame()?;
        }
        writer.write_full_frame()?;
        writer.follow(cache.sequence())?;
    }
    if !writer.payload.is_empty() {
        writer.write_frame()?;
    }
    let sequence = cache.sequence();
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
    /// The items of the next frame.
    payload: Vec<u8>,
    /// The number of items added since the last flush.
    items: u64,
    /// `Sequence::flushed` when it was last read.
    flushed: u64,
}

impl<W: Write> Writer<'_, W> {
    /// Adds an item to the payload. Nothing is written to the file, so the caller does not wait.
    fn add(&mut self, hit: &Hit<'_>) {
        let payload = &mut self.payload;
        payload.push(hit.key.len() as u8);
        payload.push(hit.marks.to_bits());
        payload.extend_from_slice(&hit.flags.to_le_bytes());
        payload.extend_from_slice(&hit.expiry.to_bits().to_le_bytes());
        if hit.marks.has(Marks::CLIENT_CAS) {
            payload.extend_from_slice(&hit.cas().to_le_bytes());
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

    /// Writes `length`, the payload's checksum, and the payload.
    fn write_checked(&mut self, length: u32) -> io::Result<()> {
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&crc32fast::hash(&self.payload).to_le_bytes())?;
        self.out.write_all(&self.payload)?;
        self.payload.clear();
        Ok(())
    }

    /// If everything was flushed since the last call, writes a flush to the file, which removes the
    /// items written before it. Drops the items in the payload, because they may have been added
    /// before or after the flush.
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
    has_tenants: bool,
    is_outdated: bool,
    /// When the file was written, by the clock of the cache that wrote it and by the system's.
    now: u32,
    moment: Moment,
}

impl Header {
    fn read(source: &mut Source<impl Read>) -> Result<Header, Refusal> {
        let mut header = source.bytes(12)?;
        let mut fields = Fields(&header);
        let has_tenants = match (fields.array()?, fields.u32()?) {
            (MAGIC, VERSION) => true,
            (MAGIC, VERSION_WITHOUT_TENANTS) => false,
            // Other versions may have another layout.
            (MAGIC, version) => return Err(Refusal::Version(version)),
            _ => return Err(Refusal::Foreign),
        };
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
        Ok(Header { has_tenants, is_outdated, now, moment: Moment { wall, boot } })
    }
}

/// Converts seconds of the clock of the cache that wrote a file to the reader's clock: a second in
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

/// Reads a file of `length` bytes, or a stream of unknown length, into empty caches: `named`
/// returns that of each tenant, if there still is one, and by the empty name that of the users
/// without a tenant. If the file is refused, the caches may have some of its items. `moment` is the
/// current time.
pub(super) fn read<'c>(
    source: impl Read,
    length: Option<u64>,
    named: impl Fn(&str) -> Option<&'c Cache>,
    accepts_outdated: bool,
    moment: &Moment,
) -> Result<Summary, Refusal> {
    let mut source = Source { source, left: length };
    let header = Header::read(&mut source)?;
    if header.is_outdated && !accepts_outdated {
        return Err(Refusal::Outdated);
    }
    let common = named("").expect("there are always users without a tenant");
    let passed = header.moment.until(moment);
    let shift = Shift { seconds: i64::from(common.now()) - i64::from(header.now) - i64::from(passed) };
    let mut summary = Summary::default();
    if header.has_tenants {
        while let Some(name) = source.tenant()? {
            summary.read_cache(&mut source, named(&name), &shift)?;
        }
    } else {
        summary.read_cache(&mut source, Some(common), &shift)?;
    }
    if source.left.is_some_and(|left| left != 0) {
        return Err(Refusal::Torn);
    }
    Ok(summary)
}

impl Summary {
    /// Reads the items of a tenant into its cache. Leaves them out if there is none.
    fn read_cache(
        &mut self,
        source: &mut Source<impl Read>,
        cache: Option<&Cache>,
        shift: &Shift,
    ) -> Result<(), Refusal> {
        let (before, mut since_flush) = (self.items, 0);
        loop {
            match Fields(&source.bytes(4)?).u32()? {
                0 => break,
                FLUSH => {
                    self.flush(cache, before);
                    since_flush = 0;
                }
                length => {
                    let payload = source.checked(length)?;
                    let mut fields = Fields(&payload);
                    while !fields.0.is_empty() {
                        let is_in = fields.item(|key, new| {
                            let new = New { expiry: shift.of_expiry(new.expiry), ..new };
                            cache.is_some_and(|cache| put(cache, key, &new))
                        })?;
                        *(if is_in { &mut self.items } else { &mut self.left_out }) += 1;
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
        match (cache, shift.of(flush)) {
            _ if flush == 0 => (),
            (Some(cache), second) if second > cache.now() => cache.flush_at(second),
            _ => self.flush(cache, before),
        }
        Ok(())
    }

    /// Flushes the items of a cache read so far. There were `before` items in others.
    fn flush(&mut self, cache: Option<&Cache>, before: u64) {
        cache.into_iter().for_each(|cache| cache.flush(0));
        self.left_out += self.items - before;
        self.items = before;
    }
}

/// Stores an item. Returns false if it has expired, or if there is no room for it.
fn put(cache: &Cache, key: &[u8], new: &New<'_>) -> bool {
    let Value::Whole(value) = new.value else { return false };
    !new.expiry.has_passed(cache.now())
        && key.len() + value.len() <= cache.max_item()
        && cache.put(key, new, |_| (true, ()), |_| ()).is_ok()
}

/// A file of known length, or a stream.
struct Source<R> {
    source: R,
    /// The number of bytes left, if known.
    left: Option<u64>,
}

impl<R: Read> Source<R> {
    fn bytes(&mut self, count: u32) -> Result<Vec<u8>, Refusal> {
        // Checked before memory is allocated, because the length may be damaged.
        match &mut self.left {
            Some(left) => *left = left.checked_sub(count.into()).ok_or(Refusal::Torn)?,
            None if count > MAX_FRAME => return Err(Refusal::Corrupt),
            None => (),
        }
        let mut bytes = vec![0; count as usize];
        self.source.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The name of the next tenant; none at the end of the file.
    fn tenant(&mut self) -> Result<Option<String>, Refusal> {
        match Fields(&self.bytes(4)?).u32()? {
            0 => return Ok(None),
            TENANT => (),
            _ => return Err(Refusal::Corrupt),
        }
        let front = self.bytes(8)?;
        let mut fields = Fields(&front);
        let (checksum, length) = (fields.u32()?, fields.u32()?);
        if length > MAX_NAME {
            return Err(Refusal::Corrupt);
        }
        let name = self.bytes(length)?;
        if crc32fast::hash(&name) != checksum {
            return Err(Refusal::Corrupt);
        }
        String::from_utf8(name).map(Some).map_err(|_| Refusal::Corrupt)
    }

    fn checked(&mut self, count: u32) -> Result<Vec<u8>, Refusal> {
        let checksum = Fields(&self.bytes(4)?).u32()?;
        let payload = self.bytes(count)?;
        if crc32fast::hash(&payload) == checksum { Ok(payload) } else { Err(Refusal::Corrupt) }
    }
}

/// Bytes to be split into fields.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], Refusal> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Refusal::Corrupt)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        Ok(self.take(N)?.try_into().expect("the slice has this length"))
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
        let cas = marks.has(Marks::CLIENT_CAS).then(|| self.u64()).transpose()?;
        let value_len = self.u32()?;
        let (key, value) = (self.take(key_len.into())?, self.take(value_len as usize)?);
        if !(1..=MAX_KEY).contains(&key.len()) {
            return Err(Refusal::Corrupt);
        }
        Ok(take(key, New { expiry, cas, marks, ..New::plain(flags, Value::Whole(value)) }))
    }
}

#[cfg(test)]
mod tests;
