//! Figure 8: requests per second of a memcached server by number of client processes, with our
//! table and with a global lock, and how often the lock was contended.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::value_parser;
use indicatif::ProgressBar;

use super::claims::{Claim, Verdict};
use crate::lookups::Conditions;
use relativist_bench::harness::chart::{Chart, Line};
use relativist_bench::harness::report::{Report, significant, table};
use relativist_bench::harness::rounds::{order, progress};
use relativist_bench::harness::stats::{Summary, ratios};
use relativist_bench::harness::workers::Cpus;
use relativist_bench::memcached::measure::{Plan, Sample, Source, failures, in_turns};
use relativist_bench::memcached::workload::{DEFAULT, Workload};
use relativist_check::client::allow_connections;
use relativist_check::cores::Cores;
use relativist_check::interruption;
use relativist_check::server::{Server, ServerCommand};

/// Clients per process. In the paper, more clients did not increase the rate.
const CLIENTS: u16 = 4;

/// The option of a relativistd with one lock around all commands. It takes the feature
/// `global-lock`.
const GLOBAL_LOCK: [&str; 2] = ["--engine", "global-lock"];

/// Options of figure 8.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Also draw figure 8, with relativistd and with this memcached command
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, require_equals = true, default_missing_value = "memcached -u root")]
    memcached: Option<ServerCommand>,

    /// The relativistd command for figure 8, built with --features global-lock
    #[arg(long, value_name = "COMMAND", default_value = "relativistd")]
    relativistd: ServerCommand,

    /// Numbers of client threads in figure 8, with four clients each. In the paper these were
    /// processes
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 12], value_parser = value_parser!(u16).range(1..=1024))]
    processes: Vec<u16>,

    /// Server threads in figure 8; the paper had twelve [default: one per CPU]
    #[arg(long, value_parser = value_parser!(u16).range(1..=64))]
    server_threads: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Relativistic,
    GlobalLock,
    Memcached,
}

const ENGINES: [Engine; 3] = [Engine::Relativistic, Engine::GlobalLock, Engine::Memcached];

impl Engine {
    fn label(self) -> &'static str {
        match self {
            Self::Relativistic => "relativistd",
            Self::GlobalLock => "relativistd, global lock",
            Self::Memcached => "memcached",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Get { processes: u16 },
    Set { processes: u16 },
}

#[derive(Clone, Debug)]
struct Step {
    engine: Engine,
    case: Case,
    run: usize,
}

#[derive(Clone, Debug)]
struct Parameters {
    /// The versions of the servers.
    versions: Vec<Option<String>>,
    processes: Vec<u16>,
    server_threads: u16,
    seconds: f64,
    runs: usize,
}

impl Parameters {
    fn of(options: &Options, conditions: &Conditions, memcached: &ServerCommand, cpus: &Cpus) -> Result<Self> {
        let mut processes = options.processes.clone();
        processes.sort_unstable();
        processes.dedup();
        Ok(Self {
            versions: [&options.relativistd, memcached].map(ServerCommand::version).into(),
            processes,
            server_threads: options.server_threads.unwrap_or(cpus.count() as u16),
            seconds: conditions.setting()?.seconds,
            runs: conditions.runs(),
        })
    }

    /// Returns all measurements in order: run by run, and the engines in turns.
    fn steps(&self) -> Vec<Step> {
        let processes = || self.processes.iter().copied();
        let gets = processes().map(|processes| Case::Get { processes });
        let cases = gets.chain(processes().map(|processes| Case::Set { processes }));
        let steps = (0..self.runs).flat_map(|run| {
            cases.clone().flat_map(move |case| {
                order(run, ENGINES.len()).map(move |engine| Step { engine: ENGINES[engine], case, run })
            })
        });
        steps.collect()
    }
}

impl Case {
    fn workload(self) -> Workload {
        let of = |processes: u16, sets| Workload { threads: processes, clients: CLIENTS * processes, sets, ..DEFAULT };
        match self {
            Self::Get { processes } => of(processes, 0),
            Self::Set { processes } => of(processes, 100),
        }
    }
}

/// What figure 8 adds to the report.
pub struct Part {
    pub claims: Vec<Claim>,
    /// The profile of lock contention, if the servers count it.
    pub profile: String,
}

impl Options {
    /// Starts and ends the servers, if they will be needed, so that a server that does not start is
    /// reported now and not after hours.
    pub fn try_servers(&self) -> Result<()> {
        let Some(memcached) = &self.memcached else { return Ok(()) };
        let global_lock = self.relativistd.with(&GLOBAL_LOCK);
        let mut servers = [&self.relativistd, &global_lock, memcached].into_iter();
        servers.try_for_each(|command| Server::start(command, false, &Cores::default()).map(drop))
    }

    /// Measures and draws figure 8, if requested.
    pub fn measure(
        &self,
        folder: &Path,
        conditions: &Conditions,
        cpus: &Cpus,
        report: &mut Report,
    ) -> Result<Option<Part>> {
        let Some(memcached) = &self.memcached else { return Ok(None) };
        let parameters = Parameters::of(self, conditions, memcached, cpus)?;
        let steps = parameters.steps();
        let mut samples = Vec::new();
        allow_connections()?;
        let bar = progress(steps.len());
        for step in steps {
            if !interruption::is_wanted() {
                bar.set_message(format!("{}, {:?}", step.engine.label(), step.case));
                let sample = self.sample(&step, &parameters, memcached)?;
                samples.push((step, sample));
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let findings = Findings { parameters: &parameters, samples };
        if let Some(share) = findings.largest_share_of_clients().filter(|&share| share > 0.5) {
            report.warn(format!(
                "figure 8: clients took up to {:.0} % of the CPU time of servers and clients: the rates depend on the clients, too",
                share * 100.0
            ));
        }
        findings.failures().into_iter().for_each(|failure| report.warn(format!("figure 8: {failure}")));
        findings.draw(folder)?;
        Ok(Some(Part { claims: findings.claims(), profile: findings.profile() }))
    }

    fn sample(&self, step: &Step, parameters: &Parameters, memcached: &ServerCommand) -> Result<Sample> {
        let threads = parameters.server_threads.to_string();
        let options = ["-t", &threads, "-m", "1024"];
        let command = match step.engine {
            Engine::Relativistic => self.relativistd.with(&options),
            Engine::GlobalLock => self.relativistd.with(&options).with(&GLOBAL_LOCK),
            Engine::Memcached => memcached.with(&options),
        };
        let plan = Plan {
            rounds: 1,
            first_round: step.run,
            measured: Duration::from_secs_f64(parameters.seconds),
            slot: None,
            unix: false,
            server_cores: Cores::default(),
            client_cores: Cores::default(),
        };
        let workload = step.case.workload();
        let mut measured = in_turns(&workload, &plan, &[Source::Command(command)], &ProgressBar::hidden())?;
        Ok(measured.remove(0).samples.remove(0))
    }
}

struct Findings<'p> {
    parameters: &'p Parameters,
    samples: Vec<(Step, Sample)>,
}

impl Findings<'_> {
    fn of(&self, engine: Engine, case: Case) -> impl Iterator<Item = &Sample> {
        let matching = self.samples.iter().filter(move |(step, _)| step.engine == engine && step.case == case);
        matching.map(|(_, sample)| sample)
    }

    fn rates(&self, engine: Engine, case: Case) -> Vec<f64> {
        self.of(engine, case).map(Sample::rate).collect()
    }

    /// Returns the median over runs of the quotient of two rates of the same run.
    fn quotient(&self, one: (Engine, Case), other: (Engine, Case)) -> Option<f64> {
        let [one, other] = [one, other].map(|(engine, case)| self.rates(engine, case));
        ratios(&one, &other).map(|summary| summary.median)
    }

    fn fewest(&self) -> u16 {
        self.parameters.processes[0]
    }

    fn most(&self) -> u16 {
        *self.parameters.processes.last().expect("there is one at least")
    }

    fn largest_share_of_clients(&self) -> Option<f64> {
        let share = |sample: &Sample| Some(sample.client_seconds / (sample.client_seconds + sample.server?.seconds()));
        self.samples.iter().filter_map(|(_, sample)| share(sample)).max_by(f64::total_cmp)
    }

    fn failures(&self) -> Vec<String> {
        let of = |engine: Engine| self.samples.iter().filter(move |(step, _)| step.engine == engine);
        let failures = |engine: Engine| failures(engine.label(), of(engine).map(|(_, sample)| sample));
        ENGINES.into_iter().flat_map(failures).collect()
    }

    fn claims(&self) -> Vec<Claim> {
        vec![self.ahead(), self.scales(), self.sets(), self.contention()]
    }

    /// Draws figure 8. Returns it as SVG.
    fn draw(&self, folder: &Path) -> Result<String> {
        let Parameters { server_threads, runs, seconds, versions, .. } = self.parameters;
        let versions: Vec<&str> = versions.iter().flatten().map(String::as_str).collect();
        let caption = format!(
            "{server_threads} server threads, {CLIENTS} clients per process with one request outstanding; 100,000 items of 100 bytes;\n\
             medians of {runs} runs of {seconds} s, lines: quartiles. {}.",
            versions.join(", ")
        );
        let chart = Chart {
            title: "Figure 8: Requests to a memcached server",
            x_label: "Client processes (here: threads)",
            y_label: "Requests per second (thousands)",
            unit: 1e3,
            logarithmic: false,
            caption: &caption,
        };
        let curve = |verb: &str, engine: Engine, case: fn(u16) -> Case| {
            let point =
                |&processes: &u16| Some((f64::from(processes), Summary::of(self.rates(engine, case(processes)))?));
            Line {
                label: format!("{verb}, {}", engine.label()),
                points: self.parameters.processes.iter().filter_map(point).collect(),
            }
        };
        let get: fn(u16) -> Case = |processes| Case::Get { processes };
        let set: fn(u16) -> Case = |processes| Case::Set { processes };
        let kinds = [("GET", get), ("SET", set)];
        let curves = kinds.iter().flat_map(|(verb, case)| ENGINES.map(|engine| curve(verb, engine, *case)));
        let curves: Vec<Line> = curves.filter(|curve| !curve.points.is_empty()).collect();
        chart.draw(folder, "figure8", &curves)
    }

    fn ahead(&self) -> Claim {
        let case = Case::Get { processes: self.most() };
        let quotient = |other| self.quotient((Engine::Relativistic, case), (other, case));
        let answer = quotient(Engine::GlobalLock).map(|lock| {
            let memcached = quotient(Engine::Memcached).map(|ratio| format!("; {}x of memcached", significant(ratio)));
            let here = format!("with {}: {}x{}", self.most(), significant(lock), memcached.unwrap_or_default());
            (here, at_least(lock, 1.46, 1.0))
        });
        claim(
            "with 12 client processes and 12 server threads, 46 % more GETs per second than with the global lock",
            answer,
        )
    }

    fn scales(&self) -> Claim {
        let speedup = |engine| {
            let case = |processes| (engine, Case::Get { processes });
            self.quotient(case(self.most()), case(self.fewest()))
        };
        let answer = speedup(Engine::Relativistic).zip(speedup(Engine::GlobalLock)).map(|(ours, lock)| {
            let here = format!(
                "from {} to {} processes: {}x, with the lock {}x",
                self.fewest(),
                self.most(),
                significant(ours),
                significant(lock)
            );
            (here, at_least(ours / lock, 1.2, 1.0))
        });
        claim(
            "with the global lock GETs hit a hard limit; without, their rate grows up to the limits of the system",
            answer,
        )
    }

    fn sets(&self) -> Claim {
        let case = Case::Set { processes: self.most() };
        let answer = self
            .quotient((Engine::Relativistic, case), (Engine::GlobalLock, case))
            .map(|ratio| (format!("with {}: {}x", self.most(), significant(ratio)), at_least(ratio, 0.9, 0.7)));
        claim("SETs are marginally slower than with the global lock", answer)
    }

    /// Returns the lock contention of GETs with the largest number of processes, in the median run.
    fn contention_of(&self, engine: Engine) -> Vec<(String, f64)> {
        let samples: Vec<&Sample> = self.of(engine, Case::Get { processes: self.most() }).collect();
        let Some(first) = samples.first() else { return Vec::new() };
        let median = |name: &String| {
            let counts = samples.iter().filter_map(|sample| sample.contention.get(name).copied());
            Some((name.clone(), Summary::of(counts)?.median))
        };
        first.contention.keys().filter_map(median).collect()
    }

    fn contention(&self) -> Claim {
        let contended = |engine| {
            let counts = self.contention_of(engine);
            let contended: Vec<f64> =
                counts.iter().filter(|(name, _)| name.contains("contended")).map(|(_, count)| *count).collect();
            (!contended.is_empty()).then(|| contended.iter().sum::<f64>())
        };
        let answer = contended(Engine::Relativistic).zip(contended(Engine::GlobalLock)).map(|(ours, lock)| {
            let here = format!("times that a lock was held: {ours:.0}, with the global lock {lock:.0}");
            let verdict = match (ours, lock) {
                (0.0, lock) if lock > 0.0 => Verdict::Holds,
                (ours, lock) if ours < lock / 100.0 => Verdict::InPart,
                _ => Verdict::Fails,
            };
            (here, verdict)
        });
        claim("GETs contend for the global lock; without it, they contend for no lock", answer)
    }

    fn profile(&self) -> String {
        let rows: Vec<Vec<String>> = ENGINES
            .into_iter()
            .flat_map(|engine| {
                let row = move |(name, count)| vec![engine.label().to_owned(), name, significant(count)];
                self.contention_of(engine).into_iter().map(row)
            })
            .collect();
        if rows.is_empty() {
            String::new()
        } else {
            format!("\nFigure 8, locks during GETs:\n\n{}", table(&["server", "counter", "count"], rows))
        }
    }
}

fn claim(paper: &'static str, answer: Option<(String, Verdict)>) -> Claim {
    super::claims::claim("Figure 8", paper, answer)
}

fn at_least(ratio: f64, holds: f64, in_part: f64) -> Verdict {
    match ratio {
        ratio if ratio >= holds => Verdict::Holds,
        ratio if ratio > in_part => Verdict::InPart,
        _ => Verdict::Fails,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relativist_check::server::Cost;
    use std::collections::BTreeMap;

    fn parameters() -> Parameters {
        Parameters {
            versions: vec![Some("one 1.0".into()), None],
            processes: vec![1, 4],
            server_threads: 2,
            seconds: 1.0,
            runs: 2,
        }
    }

    /// Makes samples that resemble the paper's: with the global lock the rate does not grow with
    /// the number of processes, otherwise it does, and SETs are a little slower. Only relativistd
    /// counts lock contention.
    fn sample(Step { engine, case, .. }: &Step) -> Sample {
        let has_lock = *engine == Engine::GlobalLock;
        let requests = match case {
            Case::Get { processes } => {
                if has_lock {
                    1000
                } else {
                    600 * u64::from(*processes)
                }
            }
            Case::Set { .. } => {
                if has_lock {
                    1000
                } else {
                    950
                }
            }
        };
        let counts_locks = *engine != Engine::Memcached;
        let contention = counts_locks.then(|| ("engine_contended".to_owned(), if has_lock { 500.0 } else { 0.0 }));
        Sample {
            requests,
            seconds: 1.0,
            hit_ratio: Some(1.0),
            client_seconds: 0.75,
            server: Some(Cost { user_seconds: 0.1, system_seconds: 0.15, resident_bytes: 1 }),
            contention: BTreeMap::from_iter(contention),
            ..Sample::default()
        }
    }

    #[test]
    fn a_run_measures_every_engine_in_every_case() {
        let steps = parameters().steps();
        assert_eq!(steps.len(), 2 * 3 * (2 + 2));
        assert!(steps[..3].iter().all(|step| step.case == Case::Get { processes: 1 }));
    }

    #[test]
    fn figures_and_claims_come_from_the_samples() {
        let parameters = parameters();
        let samples = parameters.steps().into_iter().map(|step| (step.clone(), sample(&step))).collect();
        let findings = Findings { parameters: &parameters, samples };
        let claims = findings.claims();
        assert!(claims.iter().all(|claim| claim.verdict == Verdict::Holds), "{claims:?}");
        assert!(claims[0].here.contains("with 4: 2.40x; 1.00x of memcached"), "{:?}", claims[0]);
        assert!(findings.profile().contains("500"), "{}", findings.profile());
        let picture = findings.draw(tempfile::tempdir().unwrap().path()).unwrap();
        assert!(picture.contains("GET, relativistd") && picture.contains("one 1.0"));
        assert_eq!(findings.largest_share_of_clients(), Some(0.75));
        assert!(findings.failures().is_empty());
    }

    #[test]
    fn what_a_server_did_not_do_is_said() {
        let parameters = parameters();
        let with_misses = |step: Step| (step.clone(), Sample { missed: 2, ..sample(&step) });
        let memcached = parameters.steps().into_iter().filter(|step| step.engine == Engine::Memcached).take(2);
        let findings = Findings { parameters: &parameters, samples: memcached.map(with_misses).collect() };
        assert_eq!(findings.failures(), ["memcached did not find 4 keys that had been stored"]);
    }

    #[test]
    fn what_was_not_measured_is_not_claimed() {
        let parameters = parameters();
        let findings = Findings { parameters: &parameters, samples: Vec::new() };
        assert!(findings.claims().iter().all(|claim| claim.verdict == Verdict::Unknown));
        assert!(findings.profile().is_empty());
    }
}
