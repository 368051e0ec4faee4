//! Decodes a whole binary stream to owned values that can be compared. The tests and the fuzz
//! target use this module.

use relativist_memcache::binary::{Decoded, Decoder, Opcode, Request, Status};
use relativist_memcache::{Limits, MAX_KEY};

/// An owned [`Decoded`], without the numbers of consumed bytes. `Incomplete` has no event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    Request { opcode: Opcode, is_quiet: bool, extras: Vec<u8>, key: Vec<u8>, value: Vec<u8> },
    Reject { status: Status, closes: bool },
    TooLarge { key: Vec<u8>, replaces: bool },
    Close,
}

impl Event {
    fn from_request(request: &Request<'_>, limits: Limits) -> Event {
        assert!(request.key.len() <= MAX_KEY && request.value.len() <= limits.max_value, "a limit is exceeded");
        let [extras, key, value] = [request.extras, request.key, request.value].map(<[u8]>::to_vec);
        Event::Request { opcode: request.opcode, is_quiet: request.is_quiet, extras, key, value }
    }
}

/// Decodes a stream that arrives in `pieces`, with a new decoder. Collects some values separately,
/// and asserts what must hold for any input.
pub fn events<'p>(limits: Limits, is_authenticated: bool, pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<Event> {
    let mut decoder = Decoder::new(limits);
    let (mut input, mut events) = (Vec::new(), Vec::new());
    // The bytes before a store's value, and the value's length.
    let mut apart: Option<(Vec<u8>, usize)> = None;
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            if let Some((front, length)) = apart.take_if(|(_, length)| *length <= input.len()) {
                let value: Vec<u8> = input.drain(..length).collect();
                let request = Request { value: &value, ..Request::of_front(&front).expect("it was one") };
                events.push(Event::from_request(&request, limits));
            }
            if apart.is_some() {
                break;
            }
            let (consumed, event) = match decoder.decode(&input, is_authenticated) {
                Decoded::Request { consumed, request } => (consumed, Event::from_request(&request, limits)),
                Decoded::Reject { consumed, status, closes, .. } => (consumed, Event::Reject { status, closes }),
                Decoded::TooLarge { consumed, key, replaces } => {
                    (consumed, Event::TooLarge { key: key.to_vec(), replaces })
                }
                Decoded::Incomplete { consumed } => {
                    assert!(consumed <= input.len(), "consumed more than the input");
                    // The length decides which values are collected separately.
                    let pending = decoder.pending_store(&input).filter(|_| input.len() % 2 == 0);
                    apart = pending.map(|pending| (input[..pending.front].to_vec(), pending.length));
                    input.drain(..apart.as_ref().map_or(consumed, |(front, _)| front.len()));
                    break;
                }
                Decoded::Close => {
                    events.push(Event::Close);
                    return events;
                }
            };
            assert!((1..=input.len()).contains(&consumed), "no progress, or consumed more than the input");
            input.drain(..consumed);
            let ends = matches!(event, Event::Reject { closes: true, .. });
            events.push(event);
            if ends {
                return events;
            }
        }
    }
    events
}

/// Encodes a request.
#[allow(dead_code, reason = "the fuzz target has no use for it")]
pub fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let body = extras.len() + key.len() + value.len();
    let mut packet = vec![0x80, opcode];
    packet.extend_from_slice(&(key.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    packet.extend_from_slice(&(body as u32).to_be_bytes());
    packet.extend_from_slice(&0xdead_beef_u32.to_be_bytes());
    packet.extend_from_slice(&cas.to_be_bytes());
    [packet.as_slice(), extras, key, value].concat()
}
