//! What the programs of this package share: names of a run, and how a story ends that does not hold.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Ends the program with status 1 and a sentence when a claim does not hold.
#[macro_export]
macro_rules! check {
    ($held:expr, $($said:tt)+) => {
        if !$held {
            eprintln!("{}:{}: {}", file!(), line!(), format!($($said)+));
            std::process::exit(1);
        }
    };
}

/// host:port of the broker under test.
pub fn bootstrap() -> String {
    std::env::args().nth(1).expect("an argument HOST:PORT")
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// A name of its own for this run.
pub fn name(story: &str) -> String {
    format!("rust-{story}-{}-{}", std::process::id(), now_ms())
}

pub fn value(n: usize) -> String {
    format!("value {n} {}", "again ".repeat(20))
}

pub fn held(story: &str) {
    println!("held {story}");
}

/// Ends the program when the stories take longer than this, wherever they are.
pub fn deadline(after: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(after);
        eprintln!("not done after {after:?}");
        std::process::exit(1);
    });
}
