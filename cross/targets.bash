# shellcheck shell=bash
# shellcheck disable=SC2034 # What is set here is used by the scripts that source this.
#
# The targets, and where things are kept. To be sourced by the scripts here, from the repository's root.

# Everything that is installed, fetched or built. KEEPWATCH_CROSS may name a directory that outlives
# `cargo clean`.
cache=$(realpath -m "${KEEPWATCH_CROSS:-target/cross}")

all=(x86_64 aarch64 armv7 arm mips mipsel)

# Says what is wrong, in one line, and ends.
die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# Puts the targets that were asked for into `targets`.
choose() { # TARGET... | all
    [ $# -gt 0 ] || die "which target? One or more of: ${all[*]}, or all"
    if [ "$*" = all ]; then
        set -- "${all[@]}"
    fi
    local target
    for target; do
        describe "$target"
    done
    targets=("$@")
}

# Sets what there is to know of a target:
#   triple     as rustc calls it
#   features   of the CPU, for rustc
#   zig, cpu   as zig calls it; without the CPU zig would take a newer one than rustc does
#   binutils   what Debian calls its binutils
#   user       runs its programs on another machine, with a CPU of the kind that is out there
#   relocation pie if it is loaded anywhere, static if at a fixed address
#   page_size  what sections are aligned to: the linker's own idea wastes 64 kB of file
describe() { # TARGET
    page_size=4096 cpu='' features='' relocation=pie
    case $1 in
    x86_64)
        # Needs nothing to run; cargo wants something.
        triple=x86_64-unknown-linux-musl zig=x86_64-linux-musl binutils=x86_64-linux-gnu user=env
        ;;
    aarch64)
        # Kernels with pages of 64 kB exist.
        triple=aarch64-unknown-linux-musl zig=aarch64-linux-musl page_size=65536
        binutils=aarch64-linux-gnu user='qemu-aarch64-static -cpu cortex-a53'
        ;;
    armv7)
        # Every one of them has Thumb-2, which is a fifth smaller.
        triple=armv7-unknown-linux-musleabihf zig=arm-linux-musleabihf features=,+thumb-mode
        binutils=arm-linux-gnueabi user='qemu-arm-static -cpu cortex-a7'
        ;;
    arm)
        # ARMv5 and all that came after it, in Thumb, a fifth smaller here too. What is atomic is done by
        # the kernel's helpers (CONFIG_KUSER_HELPERS, which a kernel for ARMv5 always has).
        triple=armv5te-unknown-linux-musleabi zig=arm-linux-musleabi cpu=arm926ej_s features=,+thumb-mode
        binutils=arm-linux-gnueabi user='qemu-arm-static -cpu arm926'
        ;;
    # Where every address comes from a table, a sixth would be added to the size.
    mips)
        relocation=static
        triple=mips-unknown-linux-musl zig=mips-linux-musleabi cpu=mips32r2+soft_float
        binutils=mips-linux-gnu user='qemu-mips-static -cpu 24Kc'
        ;;
    mipsel)
        relocation=static
        triple=mipsel-unknown-linux-musl zig=mipsel-linux-musleabi cpu=mips32r2+soft_float
        binutils=mips-linux-gnu user='qemu-mipsel-static -cpu 24Kc'
        ;;
    *) die "no target $1; there are: ${all[*]}" ;;
    esac
}
