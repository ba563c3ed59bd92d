//! The network namespace, and the mounts of which its name is one.

use keepwatch::monitor::Input;

use super::Simulation;

impl Simulation<'_> {
    /// Something is mounted or unmounted. It is told once, until the core has looked.
    pub(super) fn change_mounts(&mut self) {
        if !self.options.mounts_are_hidden && !self.mounts_changed {
            self.mounts_changed = true;
            self.feed(&Input::MountsChanged);
        }
    }

    /// Where nothing tells of mounts, the daemon may find out `at_once` all the same.
    pub(super) fn delete_namespace(&mut self, at_once: bool) {
        self.namespace_deleted = true;
        self.change_mounts();
        if self.options.mounts_are_hidden && at_once {
            self.feed(&Input::NamespaceGone);
        }
    }

    pub(super) fn look_at_namespace(&mut self) -> Option<Input> {
        self.mounts_changed = false;
        self.namespace_deleted.then_some(Input::NamespaceGone)
    }
}
