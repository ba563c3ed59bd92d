# Stands in for lang/rust/rust-package.mk, and builds no program.

RUST_ARCH_DEPENDS:=@(the architectures that the feed's Rust builds for)
