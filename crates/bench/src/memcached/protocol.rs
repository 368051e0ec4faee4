//! Requests as bytes.

use super::items::Items;
use super::workload::Protocol;

impl Protocol {
    /// Appends a request for some items.
    pub fn push_get(self, items: &Items, indices: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
        match self {
            Self::Classic => {
                out.extend_from_slice(b"get");
                for index in indices {
                    out.push(b' ');
                    items.push_key(index, out);
                }
                out.extend_from_slice(b"\r\n");
            }
            Self::Meta => {
                let several = indices.len() > 1;
                for index in indices {
                    out.extend_from_slice(b"mg ");
                    items.push_key(index, out);
                    // With several keys, missing ones have no reply.
                    out.extend_from_slice(if several { b" k v q\r\n" } else { b" k v\r\n" });
                }
                if several {
                    out.extend_from_slice(b"mn\r\n");
                }
            }
        }
    }

    /// Appends a request to store an item.
    pub fn push_set(self, items: &Items, index: u64, out: &mut Vec<u8>) {
        let value = items.value(index);
        let (before, after) = match self {
            Self::Classic => (&b"set "[..], &b" 0 0 "[..]),
            Self::Meta => (&b"ms "[..], &b" "[..]),
        };
        out.extend_from_slice(before);
        items.push_key(index, out);
        out.extend_from_slice(after);
        out.extend_from_slice(itoa::Buffer::new().format(value.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::{DEFAULT, Sizes, Workload};
    use super::Protocol::{Classic, Meta};
    use super::*;

    fn items() -> Items {
        Items::new(&Workload { items: 10, key_size: "3".parse().unwrap(), value_size: Sizes::one(2), ..DEFAULT })
    }

    fn get(protocol: Protocol, indices: &[u64]) -> String {
        let mut out = Vec::new();
        protocol.push_get(&items(), indices.iter().copied(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn requests_are_those_of_the_protocol() {
        assert_eq!(get(Classic, &[1]), "get kk1\r\n");
        assert_eq!(get(Classic, &[1, 2]), "get kk1 kk2\r\n");
        assert_eq!(get(Meta, &[1]), "mg kk1 k v\r\n");
        assert_eq!(get(Meta, &[1, 2]), "mg kk1 k v q\r\nmg kk2 k v q\r\nmn\r\n");
        let items = items();
        for (protocol, line) in [(Classic, "set kk3 0 0 2\r\n"), (Meta, "ms kk3 2\r\n")] {
            let mut out = Vec::new();
            protocol.push_set(&items, 3, &mut out);
            assert_eq!(out, [line.as_bytes(), items.value(3), b"\r\n"].concat());
        }
    }
}
