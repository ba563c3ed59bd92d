//! How values from outside go into frames.

use defmt::{Format, Formatter, write};

use super::Text;
use crate::wire::http::RouterId;
use crate::wire::ifname::InterfaceName;

/// A router of Neutron is called by a UUID, which as a number has less than half the size.
impl Format for RouterId {
    fn format(&self, f: Formatter<'_>) {
        let Some(uuid) = uuid(self.as_str()) else {
            return write!(f, "{=str}", self.as_str());
        };
        write!(
            f,
            "{0=96..128:08x}-{0=80..96:04x}-{0=64..80:04x}-{0=48..64:04x}-{0=0..48:012x}",
            uuid
        );
    }
}

impl Format for InterfaceName {
    fn format(&self, f: Formatter<'_>) {
        Text(self).format(f);
    }
}

/// The number in a UUID as Neutron writes it (RFC 9562 section 4, lower case).
fn uuid(text: &str) -> Option<u128> {
    if text.len() != 36 {
        return None;
    }
    text.bytes().enumerate().try_fold(0, |uuid, (place, byte)| {
        let digit = match (place, byte) {
            (8 | 13 | 18 | 23, b'-') => return Some(uuid),
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9') => byte - b'0',
            (_, b'a'..=b'f') => byte - b'a' + 10,
            _ => return None,
        };
        Some(uuid << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_prints_the_same_is_a_number() {
        let number = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
        assert_eq!(uuid("01234567-89ab-cdef-0123-456789abcdef"), Some(number));
        for text in [
            "01234567-89AB-cdef-0123-456789abcdef",
            "0123456789-ab-cdef-0123-456789abcdef",
            "01234567-89ab-cdef-0123-456789abcdeg",
            "01234567-89ab-cdef-0123-456789abcde",
            "r1",
        ] {
            assert_eq!(uuid(text), None, "{text}");
        }
    }
}
