//! The name of a network interface.

use core::fmt::{self, Write};

/// The longest name in bytes: `IFNAMSIZ` (`include/uapi/linux/if.h`) less the closing NUL.
const MAX_LEN: usize = 15;

/// A name that the kernel accepts for an interface: 1 to 15 bytes.
///
/// Bytes that are not text are printed escaped, so that a name never breaks a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InterfaceName([u8; MAX_LEN + 1]);

impl InterfaceName {
    /// Returns a name if the bytes follow the rules of `dev_valid_name` (`net/core/dev.c`).
    pub fn new(bytes: &[u8]) -> Option<Self> {
        // The kernel's isspace() also counts vertical tab and, being Latin-1, the no-break space.
        let illegal = |byte: &u8| matches!(byte, b'/' | b':' | b' ' | b'\t'..=b'\r' | 0 | 0xa0);
        let too_long = bytes.len() > MAX_LEN;
        if matches!(bytes, b"" | b"." | b"..") || too_long || bytes.iter().any(illegal) {
            return None;
        }
        let mut name = [0; MAX_LEN + 1];
        name.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Some(Self(name))
    }

    /// Returns the name without NUL.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Returns the name padded with NUL to `IFNAMSIZ`, as in `struct ifreq`.
    pub fn padded(&self) -> &[u8; MAX_LEN + 1] {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| match byte {
            b'!'..=b'~' => f.write_char(char::from(*byte)),
            _ => write!(f, "\\x{byte:02x}"),
        })
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
