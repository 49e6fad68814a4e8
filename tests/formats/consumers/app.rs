//! A program that uses the crate of the small model: prints the outputs for the recorded input, a number a line.

use small::{Error, Model};
use std::{env, error, fs, thread};

fn main() -> Result<(), Box<dyn error::Error>> {
    let arguments: Vec<String> = env::args().collect();
    let bytes = fs::read(&arguments[1])?;
    let input: Vec<f32> = bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let model = match arguments.get(2) {
        Some(file) => Model::open_file(file)?,
        None => Model::open()?,
    };
    let mut session = model.session_with_threads(2)?;
    let (mut output, mut sign) = (vec![f32::NAN; small::OUTPUT_ELEMENTS], vec![99i8; small::SIGN_ELEMENTS]);
    let wrong = session.run(&input[1..], &mut output, &mut sign);
    let expected = small::INPUT_ELEMENTS;
    assert_eq!(wrong, Err(Error::Length { tensor: "input", expected, given: expected - 1 }));
    assert!(output.iter().all(|value| value.is_nan()));
    // To another thread, after the model was dropped here.
    drop(model);
    let (output, sign) = thread::spawn(move || session.run(&input, &mut output, &mut sign).map(|()| (output, sign)))
        .join()
        .map_err(|_| "the thread")??;
    for (value, positive) in output.iter().zip(&sign) {
        println!("{value} {positive}");
    }
    assert_eq!(small::INPUT_SHAPE, [4, 8]);
    assert_eq!(small::missing_features(), "");
    Ok(())
}
