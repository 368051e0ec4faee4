//! A link shortener of the size of a small service, twice: with dashmap, and moved to
//! [`FlatLockMap`](relativist::FlatLockMap). The book shows the difference, and `relativist-bench
//! compare locks --workload shortener` measures both.

pub mod with_dashmap;
pub mod with_relativist;

/// What both programs do.
pub trait Program: Send + Sync {
    /// Makes a link, and returns whether it was made.
    fn shorten(&self, client: u32, owner: &str, code: &str, address: &str, now: u64) -> bool;
    fn follow(&self, code: &str, now: u64) -> Option<String>;
    fn visits(&self, code: &str) -> Option<u64>;
    fn redirect(&self, owner: &str, code: &str, address: &str) -> bool;
    fn delete(&self, owner: &str, code: &str) -> bool;
    fn codes(&self, owner: &str) -> Vec<String>;
    fn sweep(&self, now: u64) -> usize;
    fn top(&self, count: usize) -> Vec<(String, u64)>;
    /// Returns the numbers of links and of owners.
    fn len(&self) -> (usize, usize);
}

macro_rules! program {
    ($Shortener:ty) => {
        impl Program for $Shortener {
            fn shorten(&self, client: u32, owner: &str, code: &str, address: &str, now: u64) -> bool {
                self.shorten(client, owner, code, address, now).is_ok()
            }

            fn follow(&self, code: &str, now: u64) -> Option<String> {
                self.follow(code, now)
            }

            fn visits(&self, code: &str) -> Option<u64> {
                self.get(code).map(|link| link.visits)
            }

            fn redirect(&self, owner: &str, code: &str, address: &str) -> bool {
                self.redirect(owner, code, address)
            }

            fn delete(&self, owner: &str, code: &str) -> bool {
                self.delete(owner, code)
            }

            fn codes(&self, owner: &str) -> Vec<String> {
                self.codes(owner)
            }

            fn sweep(&self, now: u64) -> usize {
                self.sweep(now)
            }

            fn top(&self, count: usize) -> Vec<(String, u64)> {
                self.top(count)
            }

            fn len(&self) -> (usize, usize) {
                self.len()
            }
        }
    };
}

program!(with_dashmap::Shortener);
program!(with_relativist::Shortener);

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn programs() -> [Box<dyn Program>; 2] {
        [Box::new(with_dashmap::Shortener::default()), Box::new(with_relativist::Shortener::default())]
    }

    #[test]
    fn both_programs_do_the_same() {
        for links in programs() {
            assert!(links.shorten(1, "ada", "a", "https://a.example", 0));
            assert!(links.shorten(1, "ada", "b", "https://b.example", 0));
            assert!(!links.shorten(1, "grace", "a", "https://other.example", 0), "it is taken");
            assert_eq!(links.follow("a", 10).as_deref(), Some("https://a.example"));
            assert!(links.redirect("ada", "a", "https://c.example") && !links.redirect("grace", "a", "-"));
            assert_eq!(links.follow("a", 11).as_deref(), Some("https://c.example"));
            assert_eq!((links.visits("a"), links.visits("b"), links.visits("c")), (Some(2), Some(0), None));
            assert_eq!(links.codes("ada"), ["a", "b"]);
            assert_eq!(links.top(1), [("a".to_string(), 2)]);
            assert!(!links.delete("grace", "b") && links.delete("ada", "b"));
            assert_eq!(links.len(), (1, 1));
            assert_eq!((links.sweep(7 * 86_400 - 1), links.sweep(8 * 86_400)), (0, 1));
            assert_eq!(links.len(), (0, 0));
            // A client may make 20 links at once, and one more each 10 seconds.
            let made = |now| (0..30).filter(|n| links.shorten(2, "ada", &format!("{now}-{n}"), "-", now)).count();
            assert_eq!((made(0), made(9), made(10), made(1000)), (20, 0, 1, 20));
        }
    }

    /// The book shows the difference between both programs.
    #[test]
    fn the_book_has_the_difference() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let diff = Command::new("diff")
            .args(["-U", "1", "--label", "with dashmap", "--label", "with relativist"])
            .args(["src/shortener/with_dashmap.rs", "src/shortener/with_relativist.rs"])
            .current_dir(here)
            .output()
            .unwrap();
        let diff = String::from_utf8(diff.stdout).unwrap();
        let page = std::fs::read_to_string(here.join("../../docs/src/from-other-maps.md")).unwrap();
        assert!(page.contains(&format!("```diff\n{diff}```\n")), "put this into docs/src/from-other-maps.md:\n{diff}");
    }
}
