# Stands in for lang/rust/rust-package.mk, and builds no program.
