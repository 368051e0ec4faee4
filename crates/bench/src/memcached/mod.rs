//! Load on memcached servers. `load`, `serving` and `relativist-papers figures` share these
//! modules.
//!
//! | Module | Holds |
//! |---|---|
//! | [`workload`] | what clients do |
//! | [`items`], [`protocol`] | keys and values by number, requests and replies as bytes |
//! | [`client`], [`generator`] | connections, and the threads that drive them |
//! | [`schedule`] | when requests of an open loop are due |
//! | [`tally`], [`recurring`] | counters and latencies, and latencies that recur in every round |
//! | [`measure`], [`screen`] | measurement of servers in turns, and tables of the results |

pub mod client;
#[cfg(test)]
pub(crate) mod conversations;
pub mod generator;
pub mod items;
pub mod measure;
pub mod protocol;
pub mod recurring;
pub mod schedule;
pub mod screen;
pub mod tally;
pub mod workload;

use relativist_check::cores::Cores;
use serde::Serialize;

use crate::harness::report::Report;
use measure::Measured;
use workload::Workload;

#[derive(Clone, Debug, clap::Args, Serialize)]
pub struct Conditions {
    /// CPUs of the started servers, such as 0 or 0,2-3 [default: any]
    #[arg(long, value_name = "CPUS")]
    pub server_cores: Option<Cores>,

    /// CPUs of the client threads; thread i runs on the i-th of them [default: any]
    #[arg(long, value_name = "CPUS")]
    pub client_cores: Option<Cores>,
}

/// Warns of conditions under which the results cannot be trusted.
pub fn warn(report: &mut Report, workload: &Workload, servers: &[Measured]) {
    for server in servers {
        if let Some((rate, median)) =
            workload.rate.zip(server.summary(|sample| Some(sample.rate())).map(|rate| rate.median))
            && median < 0.98 * rate
        {
            report.warn(format!(
                "{} answered {median:.0} requests per second instead of {rate:.0}: its latencies are those of a growing queue. \
                 Use a lower --rate, or let a client have more unanswered requests (--depth)",
                server.name
            ));
        }
        server.failures().into_iter().for_each(|failure| report.warn(failure));
        if server.samples.iter().any(|sample| sample.server.is_none()) {
            report.warn(format!(
                "the process of {} cannot be found on this machine: its CPU time is unknown",
                server.name
            ));
        }
    }
}
