//! A log that is not as it was written.

use std::fs;

use lab::frames::{Decoder, Line};

use crate::lines::{everything, world};
use crate::programs::Log;

/// A log with everything in it, and what decodes it.
fn log() -> (Vec<u8>, Decoder) {
    let world = world(Log::Frames);
    everything(&world);
    let log = fs::read(world.setup.log_file()).unwrap();
    (log, Decoder::of(&Log::Frames.symbols()).unwrap())
}

/// The lines of a log that is whole.
fn lines(decoder: &Decoder, log: &[u8]) -> Vec<Line> {
    decoder.lines(log).into_iter().map(|line| line.expect("a whole frame")).collect()
}

/// The places at which frames begin: with a delimiter that follows another.
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
    // A frame with the ones before and behind it: damage does not reach farther, if it does not reach there.
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

/// As when the disk is full, or the power fails; the next run appends to it.
#[apply(trial)]
fn writing_that_was_cut_off_costs_one_frame() {
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
