//! Says what an image shows. The image is drawn here; yours comes from a file or a camera.

use stripes::{Model, CLASSES_ELEMENTS, IMAGE_ELEMENTS, IMAGE_SHAPE};

const NAMES: [&str; CLASSES_ELEMENTS] = ["plain", "horizontal", "vertical"];

/// Red, green and blue, one plane after the other, from 0 to 1: stripes of four pixels.
fn vertical_stripes() -> Vec<f32> {
    let level = |i: usize| if i % IMAGE_SHAPE[3] / 4 % 2 == 0 { 0.2 } else { 0.8 };
    (0..IMAGE_ELEMENTS).map(level).collect()
}

fn main() -> Result<(), stripes::Error> {
    let mut session = Model::open()?.session()?;
    let mut classes = [0.0; CLASSES_ELEMENTS];
    session.run(&vertical_stripes(), &mut classes)?;
    let best = (0..classes.len()).fold(0, |best, i| if classes[i] > classes[best] { i } else { best });
    println!("{} ({:.3})", NAMES[best], classes[best]);
    Ok(())
}
