//! A picture as text.

use std::fmt::Write as _;

/// Points to the right and down from the upper left corner.
pub type Point = (f64, f64);

#[derive(Debug)]
pub struct Svg(String);

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>"
        );
        Self(text)
    }

    /// Text that begins at, ends at or is centred on a point: `start`, `end`, `middle`.
    pub fn text(&mut self, (x, y): Point, anchor: &str, style: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{text}</text>"
        );
    }

    pub fn line(&mut self, from: Point, to: Point, style: &str) {
        self.polygon(&[from, to], &format!("fill=\"none\" {style}"));
    }

    /// A line through points, or the area within if it has a fill.
    pub fn polygon(&mut self, points: &[Point], style: &str) {
        let mut path = String::new();
        for (n, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if n == 0 { "M" } else { "L" });
        }
        let _ = writeln!(self.0, "<path d=\"{path}\" {style}/>");
    }

    pub fn circle(&mut self, (x, y): Point, radius: f64, style: &str) {
        let _ = writeln!(self.0, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" {style}/>");
    }

    pub fn finish(self) -> String {
        self.0 + "</svg>\n"
    }
}

/// A logarithmic scale from values to positions.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub values: (f64, f64),
    pub positions: (f64, f64),
}

impl Scale {
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = (self.values.0.log10(), self.values.1.log10());
        let share = ((value.log10() - low) / (high - low)).clamp(0.0, 1.0);
        self.positions.0 + share * (self.positions.1 - self.positions.0)
    }

    /// The powers of ten on it.
    pub fn decades(&self) -> Vec<f64> {
        let (low, high) = (self.values.0.log10().ceil(), self.values.1.log10().floor());
        (low as i32..=high as i32).map(|power| 10_f64.powi(power)).collect()
    }
}
