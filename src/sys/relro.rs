//! Makes memory read-only that is constant after relocation (RELRO).
//!
//! For a dynamic program the dynamic linker does that. musl relocates a static program, but does not protect it.

#![expect(unsafe_code, reason = "reads program headers and calls mprotect")]

use core::ffi::{c_int, c_void};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::slice;

use nix::errno::Errno as NixErrno;
use nix::libc::{self, dl_phdr_info};

use crate::errno::Errno;

/// Protects the segment `PT_GNU_RELRO` of the program.
///
/// # Errors
/// The errno of `mprotect`.
pub(super) fn protect() -> Result<(), Errno> {
    // SAFETY: the callback has the signature that the C library wants, and ignores its data pointer.
    match unsafe { libc::dl_iterate_phdr(Some(protect_object), null_mut()) } {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}

/// Protects one object; a static program has one. Returns 0 or an errno.
unsafe extern "C" fn protect_object(object: *mut dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the C library passes a valid description.
    let object = unsafe { &*object };
    // SAFETY: it has as many headers as it says.
    let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO) else {
        return 0;
    };
    // SAFETY: a call without pointers.
    let page_mask = !(unsafe { libc::getauxval(libc::AT_PAGESZ) } - 1);
    // Rounded down: the last page may have data that is written later.
    let start = (object.dlpi_addr + header.p_vaddr) & page_mask;
    let end = (object.dlpi_addr + header.p_vaddr + header.p_memsz) & page_mask;
    let address = with_exposed_provenance_mut(start as usize);
    // SAFETY: the linker puts nothing there that is written after relocation.
    let protected = unsafe { libc::mprotect(address, (end - start) as usize, libc::PROT_READ) };
    if protected == 0 { 0 } else { NixErrno::last_raw() }
}
