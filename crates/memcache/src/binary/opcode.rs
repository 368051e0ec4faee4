//! Opcodes, the layout of their packets, and the status of replies.

/// The command of a request. A quiet request has the same opcode as the other form; see
/// [`Request::is_quiet`](super::Request::is_quiet).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Opcode {
    /// Fetch an item.
    Get,
    /// Fetch an item and return its key.
    GetKey,
    /// Store.
    Set,
    /// Store if absent.
    Add,
    /// Store if present.
    Replace,
    /// Store behind the present value.
    Append,
    /// Store in front of the present value.
    Prepend,
    /// Remove.
    Delete,
    /// Count up.
    Increment,
    /// Count down.
    Decrement,
    /// Close the connection.
    Quit,
    /// Drop everything.
    Flush,
    /// Answer.
    Noop,
    /// Return the version.
    Version,
    /// Return statistics.
    Stat,
    /// Set the expiry.
    Touch,
    /// Set the expiry and fetch.
    GetAndTouch,
    /// Set the expiry, fetch, and return the key.
    GetAndTouchKey,
    /// List the SASL mechanisms.
    SaslList,
    /// Begin a SASL exchange.
    SaslAuth,
    /// Continue a SASL exchange.
    SaslStep,
}

/// The parts of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Whether there is a key; none if it is optional.
    key: Option<bool>,
    extras: &'static [u8],
    may_have_value: bool,
}

impl Opcode {
    /// The opcode of this byte, and whether it is quiet.
    pub(super) fn from_byte(byte: u8) -> Option<(Opcode, bool)> {
        Some(match byte {
            0x00 => (Opcode::Get, false),
            0x01 => (Opcode::Set, false),
            0x02 => (Opcode::Add, false),
            0x03 => (Opcode::Replace, false),
            0x04 => (Opcode::Delete, false),
            0x05 => (Opcode::Increment, false),
            0x06 => (Opcode::Decrement, false),
            0x07 => (Opcode::Quit, false),
            0x08 => (Opcode::Flush, false),
            0x09 => (Opcode::Get, true),
            0x0a => (Opcode::Noop, false),
            0x0b => (Opcode::Version, false),
            0x0c => (Opcode::GetKey, false),
            0x0d => (Opcode::GetKey, true),
            0x0e => (Opcode::Append, false),
            0x0f => (Opcode::Prepend, false),
            0x10 => (Opcode::Stat, false),
            0x11 => (Opcode::Set, true),
            0x12 => (Opcode::Add, true),
            0x13 => (Opcode::Replace, true),
            0x14 => (Opcode::Delete, true),
            0x15 => (Opcode::Increment, true),
            0x16 => (Opcode::Decrement, true),
            0x17 => (Opcode::Quit, true),
            0x18 => (Opcode::Flush, true),
            0x19 => (Opcode::Append, true),
            0x1a => (Opcode::Prepend, true),
            0x1c => (Opcode::Touch, false),
            0x1d => (Opcode::GetAndTouch, false),
            0x1e => (Opcode::GetAndTouch, true),
            0x20 => (Opcode::SaslList, false),
            0x21 => (Opcode::SaslAuth, false),
            0x22 => (Opcode::SaslStep, false),
            0x23 => (Opcode::GetAndTouchKey, false),
            0x24 => (Opcode::GetAndTouchKey, true),
            _ => return None,
        })
    }

    /// Whether it may be asked for before a login.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Opcode::Version | Opcode::SaslList | Opcode::SaslAuth | Opcode::SaslStep)
    }

    /// Whether its value belongs to a login.
    pub(super) fn is_login(self) -> bool {
        matches!(self, Opcode::SaslAuth | Opcode::SaslStep)
    }

    pub(super) fn layout(self) -> Layout {
        let (key, extras, may_have_value): (_, &'static [u8], _) = match self {
            Opcode::Get | Opcode::GetKey | Opcode::Delete => (Some(true), &[0], false),
            Opcode::Set | Opcode::Add | Opcode::Replace => (Some(true), &[8], true),
            Opcode::Append | Opcode::Prepend | Opcode::SaslAuth | Opcode::SaslStep => (Some(true), &[0], true),
            Opcode::Increment | Opcode::Decrement => (Some(true), &[20], false),
            Opcode::Touch | Opcode::GetAndTouch | Opcode::GetAndTouchKey => (Some(true), &[4], false),
            Opcode::Stat => (None, &[0], false),
            Opcode::Flush => (Some(false), &[0, 4], false),
            Opcode::Quit | Opcode::Noop | Opcode::Version | Opcode::SaslList => (Some(false), &[0], false),
        };
        Layout { key, extras, may_have_value }
    }
}

impl Layout {
    /// Whether a packet with these lengths can be.
    pub(super) fn admits(self, key: usize, extras: u8, value: usize) -> bool {
        self.key.is_none_or(|has_key| has_key == (key > 0))
            && self.extras.contains(&extras)
            && (self.may_have_value || value == 0)
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum Status {
    /// Well.
    Success = 0,
    /// There is no such item.
    NotFound = 1,
    /// There is such an item, or it has another unique.
    Exists = 2,
    /// The value exceeds the largest item.
    TooLarge = 3,
    /// The packet is not made as it should be.
    InvalidArguments = 4,
    /// There was nothing to append to.
    NotStored = 5,
    /// The value is no number.
    NotANumber = 6,
    /// The client has not logged in, or may not do this.
    AuthFailure = 0x20,
    /// The login wants another step.
    AuthContinue = 0x21,
    /// There is no such opcode.
    UnknownCommand = 0x81,
    /// The memory limit is reached.
    OutOfMemory = 0x82,
}

impl Status {
    /// The body of a failure.
    pub fn text(self) -> &'static str {
        match self {
            Status::Success | Status::AuthContinue => "",
            Status::NotFound => "Not found",
            Status::Exists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::InvalidArguments => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NotANumber => "Non-numeric server-side value for incr or decr",
            Status::AuthFailure => "Auth failure.",
            Status::UnknownCommand => "Unknown command",
            Status::OutOfMemory => "Out of memory",
        }
    }
}
