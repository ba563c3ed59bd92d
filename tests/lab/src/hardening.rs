//! The memory of a running program.

use std::fs;
use std::path::Path;

use nix::libc::ET_DYN;

use crate::files::content;

/// Asserts that no memory of a program, not even its stack, is both writable and executable, and that its address is
/// random, except on MIPS.
pub fn assert_hardened(pid: u32, program: &Path) {
    let maps = content(Path::new(&format!("/proc/{pid}/maps")));
    for mapping in maps.lines() {
        let rights = mapping.split_whitespace().nth(1).expect("rights");
        assert!(!(rights.contains('w') && rights.contains('x')), "writable code\n{maps}");
        assert!(!mapping.ends_with("[stack]") || rights == "rw-p", "{maps}");
    }
    // `e_type` of the ELF header (`elf(5)`), in the byte order of this machine.
    let elf = fs::read(program).expect("the program");
    let kind = u16::from_ne_bytes([elf[16], elf[17]]);
    // On MIPS that would make the file a sixth larger.
    assert_eq!(
        kind == ET_DYN,
        !cfg!(any(target_arch = "mips", target_arch = "mips64")),
        "position-independent code"
    );
}
