//! keepwatch watches whether keepalived has put a virtual IP address (VIP) on an interface, keeps a one-word state file,
//! and reports each change to an agent over HTTP on a Unix socket.
//!
//! The program is what the crate is for; the library has no stable interface. Data goes one way:
//!
//! 1. [`sys`] reads bytes from the kernel and the agent;
//! 2. [`wire`] parses them;
//! 3. [`monitor`], the core, takes one input and is polled for actions, until there is none;
//! 4. [`daemon`], the loop, executes each action through [`sys`], and passes its result in before the next poll.
//!
//! [`start`] runs once, before the loop: only there may the daemon allocate, open any file and be root.
//! [`options`] is the configuration, [`log`] the output for people, [`metrics`] that for Prometheus.
//!
//! # The core by itself
//!
//! The core makes no system call and reads no clock, so the caller decides what the kernel is. Here the kernel has one
//! interface with the VIP, which is then removed:
//!
//! ```
//! use keepwatch::monitor::{Action, Answer, Input, Instant, Monitor, MonitorConfig, Question, State};
//! use keepwatch::wire::ifname::InterfaceName;
//! use keepwatch::wire::rtnl::{Address, Body, Link};
//! use netlink_packet_route::{address::AddressFlags, link::LinkFlags};
//!
//! let name = InterfaceName::new(b"eth0").unwrap();
//! let cidr = "192.0.2.10/24".parse().unwrap();
//! let link = Link {
//!     ifindex: 2,
//!     name: Some(name),
//!     flags: LinkFlags::Up | LinkFlags::Running,
//!     ethernet: true,
//!     mac: Some([2, 0, 0, 0, 0, 1]),
//!     parent: None,
//!     carrier_changes: None,
//!     ipv6_forwarding: None,
//! };
//! let flags = AddressFlags::Permanent;
//! let vip = Address { ifindex: 2, cidr, peer: cidr.address(), flags, created: 0, refreshed: false };
//!
//! let mut monitor = Monitor::new(MonitorConfig::new(name, cidr));
//! let now = Instant::ZERO;
//! let mut state_file = Vec::new();
//! // The first answer is in use once the events before it have been read.
//! for input in [Input::QueueEmpty, Input::QueueEmpty, Input::Event(Body::DelAddress(vip))] {
//!     monitor.handle(&input, now);
//!     while let Some(action) = monitor.next_action(now) {
//!         match action {
//!             Action::Ask(question) => {
//!                 let entry = match question {
//!                     Question::Addresses { .. } => Body::NewAddress(vip),
//!                     _ => Body::NewLink(link.clone()),
//!                 };
//!                 monitor.handle(&Input::Entry(entry), now);
//!                 monitor.handle(&Input::Answered(Answer::Complete), now);
//!             }
//!             // The result is passed in at once.
//!             Action::WriteState(state) => {
//!                 state_file.push(state);
//!                 monitor.handle(&Input::StateFile(Ok(())), now);
//!             }
//!             // A line for the log, for instance.
//!             _ => {}
//!         }
//!     }
//! }
//! assert_eq!(state_file, [State::Active, State::Backup]);
//! ```

pub mod check;
pub mod daemon;
pub mod errno;
pub mod hand_over;
pub(crate) mod helper;
pub mod list;
pub mod log;
pub mod metrics;
pub mod monitor;
pub mod options;
pub mod start;
pub mod sys;
mod trouble;
pub mod wire;
