//! The opcodes of requests, the layouts of their packets, and the statuses of replies.

/// The operation that a request asks for. A quiet opcode asks for the same operation as its normal
/// counterpart; see [`Request::is_quiet`](super::Request::is_quiet).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Opcode {
    /// Fetch an item.
    Get,
    /// Fetch an item and its key.
    GetKey,
    /// Store a value.
    Set,
    /// Store a value if the key is absent.
    Add,
    /// Store a value if the key is present.
    Replace,
    /// Append to the value of an item.
    Append,
    /// Prepend to the value of an item.
    Prepend,
    /// Remove an item.
    Delete,
    /// Add to a number.
    Increment,
    /// Subtract from a number.
    Decrement,
    /// Close the connection.
    Quit,
    /// Drop all items.
    Flush,
    /// Reply, and do nothing else.
    Noop,
    /// Report the server's version.
    Version,
    /// Report statistics.
    Stat,
    /// Set an item's expiry.
    Touch,
    /// Set an item's expiry and fetch it.
    GetAndTouch,
    /// Set an item's expiry and fetch it with its key.
    GetAndTouchKey,
    /// List the SASL mechanisms.
    SaslList,
    /// Begin a SASL exchange.
    SaslAuth,
    /// Continue a SASL exchange.
    SaslStep,
}

/// The parts that a packet may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Whether there must be a key, or must not be one. `None` if a key is optional.
    key: Option<bool>,
    extras: &'static [u8],
    may_have_value: bool,
}

impl Opcode {
    /// Returns the opcode that `byte` encodes, and whether it is quiet.
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

    /// Whether a client may send this opcode before it has logged in.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Opcode::Version | Opcode::SaslList | Opcode::SaslAuth | Opcode::SaslStep)
    }

    /// Whether the value of such a request is part of a login.
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
    /// Whether a packet may have these lengths.
    pub(super) fn admits(self, key: usize, extras: u8, value: usize) -> bool {
        self.key.is_none_or(|has_key| has_key == (key > 0))
            && self.extras.contains(&extras)
            && (self.may_have_value || value == 0)
    }
}

/// The status of a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum Status {
    /// The request succeeded.
    Success = 0,
    /// The item does not exist.
    NotFound = 1,
    /// The item exists, or it has another CAS value.
    Exists = 2,
    /// The value exceeds the maximum item size.
    TooLarge = 3,
    /// The packet is malformed.
    InvalidArguments = 4,
    /// There is no item to append or prepend to.
    NotStored = 5,
    /// The item's value is not a number.
    NotANumber = 6,
    /// The client has not logged in, or its login failed.
    AuthFailure = 0x20,
    /// The login needs another step.
    AuthContinue = 0x21,
    /// The opcode is unknown.
    UnknownCommand = 0x81,
    /// The memory limit is reached.
    OutOfMemory = 0x82,
}

impl Status {
    /// Returns the text in the body of a failure.
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
