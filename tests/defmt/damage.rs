//! Damaged logs.

use std::fs;

use lab::frames::{Decoder, Line};

use crate::lines::{everything, world};
use crate::programs::Log;

/// Returns a log with all kinds of lines, and its decoder.
fn log() -> (Vec<u8>, Decoder) {
    let world = world(Log::Frames);
    everything(&world);
    let log = fs::read(world.setup.log_file()).unwrap();
    (log, Decoder::of(&Log::Frames.symbols()).unwrap())
}

/// Returns the lines of an undamaged log.
fn lines(decoder: &Decoder, log: &[u8]) -> Vec<Line> {
    decoder.lines(log).into_iter().map(|line| line.expect("a whole frame")).collect()
}

/// Returns the positions at which frames begin: a delimiter that follows another one.
fn beginnings(log: &[u8]) -> Vec<usize> {
    let behind = |place: usize| place == 0 || log[place - 1] == 0;
    let is_beginning = |place: &usize| log[*place] == 0 && behind(*place);
    let mut beginnings: Vec<usize> = (0..log.len()).filter(is_beginning).collect();
    beginnings.push(log.len());
    beginnings
}

#[apply(trial)]
fn damaged_byte_costs_one_frame() {
    let (log, decoder) = log();
    let beginnings = beginnings(&log);
    assert_eq!(beginnings.len() - 1, lines(&decoder, &log).len());
    // Each frame with its neighbours: damage that spares these reaches no farther.
    for frames in beginnings.windows(4) {
        let part = &log[frames[0]..frames[3]];
        let whole = lines(&decoder, part);
        let (from, to) = (frames[1] - frames[0], frames[2] - frames[0]);
        for place in from..to {
            for flipped in [0x01, 0x20, 0x80, 0xff, part[place], !part[place]] {
                let mut damaged = part.to_vec();
                damaged[place] ^= flipped;
                let left: Vec<Line> = decoder.lines(&damaged).into_iter().flatten().collect();
                let lost = whole.iter().filter(|line| !left.contains(line)).count();
                assert!(lost <= 1, "byte {place} ^ {flipped:#x}: {lost} lost of {whole:#?}");
            }
        }
    }
}

/// A write is cut off by a full disk or a power failure, and the next run appends to it.
#[apply(trial)]
fn cut_off_write_costs_one_frame() {
    let (log, decoder) = log();
    let beginnings = beginnings(&log);
    let next = &log[..beginnings[3]];
    let whole = lines(&decoder, &log[..beginnings[6]]);
    for cut in 0..beginnings[6] {
        let appended = [&log[..cut], next].concat();
        let left: Vec<Line> = decoder.lines(&appended).into_iter().flatten().collect();
        let complete = beginnings.iter().filter(|beginning| **beginning <= cut).count() - 1;
        assert_eq!(left[..complete], whole[..complete], "cut at {cut}");
        assert_eq!(left[left.len() - 3..], whole[..3], "cut at {cut}");
    }
}
