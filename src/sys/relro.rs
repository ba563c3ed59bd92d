//! Takes away the right to write to what is constant once the program is loaded (RELRO).
//!
//! A dynamic program has that done by the dynamic linker, for which the program's headers name the
//! memory. The start that musl gives a static one relocates it and stops there.

#![expect(unsafe_code, reason = "reads the program's headers and changes the rights to its memory")]

use core::ffi::{c_int, c_void};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::slice;

use nix::errno::Errno as NixErrno;
use nix::libc::{self, dl_phdr_info};

use crate::errno::Errno;

/// Makes the memory read-only that the program's headers name for that (`PT_GNU_RELRO`).
///
/// # Errors
/// The errno of `mprotect`.
pub(super) fn protect() -> Result<(), Errno> {
    // SAFETY: the function takes what the C library gives it, and nothing of its own.
    match unsafe { libc::dl_iterate_phdr(Some(protect_object), null_mut()) } {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}

/// Protects what belongs to the program. Returns 0 or an errno.
unsafe extern "C" fn protect_object(object: *mut dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the C library describes the program by this.
    let object = unsafe { &*object };
    // SAFETY: of that it says that there are so many.
    let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO) else {
        return 0;
    };
    // SAFETY: takes nothing but the number.
    let page_mask = !(unsafe { libc::getauxval(libc::AT_PAGESZ) } - 1);
    // A page that is shared with what is written to stays as it is.
    let start = (object.dlpi_addr + header.p_vaddr) & page_mask;
    let end = (object.dlpi_addr + header.p_vaddr + header.p_memsz) & page_mask;
    let address = with_exposed_provenance_mut(start as usize);
    // SAFETY: the linker has put nothing there that is written to from `main` on.
    let protected = unsafe { libc::mprotect(address, (end - start) as usize, libc::PROT_READ) };
    if protected == 0 { 0 } else { NixErrno::last_raw() }
}
