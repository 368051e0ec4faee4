//! What a measurement ran on and what it was built from: half of what a reader needs to judge its numbers.

use serde::Serialize;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::workers::Cpus;

/// The machine, as the operating system describes it; `null` in JSON where it does not say.
#[derive(Debug, Serialize)]
pub struct Machine {
    cpu: Option<String>,
    cpus_online: Option<usize>,
    cpus_allowed: usize,
    memory_bytes: Option<u64>,
    load_average_1min: Option<f64>,
}

impl Machine {
    /// Describes this machine.
    #[must_use]
    pub fn here(cpus: &Cpus) -> Self {
        let wanted = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(wanted).ok();
        let first = system.as_ref().and_then(|system| system.cpus().first());
        Self {
            cpu: first.map(|cpu| cpu.brand().trim().to_owned()),
            cpus_online: system.as_ref().map(|system| system.cpus().len()),
            cpus_allowed: cpus.count(),
            memory_bytes: system.as_ref().map(System::total_memory),
            load_average_1min: System::load_average().ok().map(|load| load.one),
        }
    }

    /// The load average of the last minute, when it tells of other work that is enough to disturb.
    #[must_use]
    pub fn disturbance(&self) -> Option<f64> {
        self.load_average_1min.filter(|&load| load > 0.3)
    }
}

/// Versions of everything the numbers depend on.
#[derive(Debug, Serialize)]
pub struct Versions {
    workbench: &'static str,
    rustc: &'static str,
    target: &'static str,
    opt_level: &'static str,
    rustflags: &'static str,
    debug_assertions: bool,
    features: Vec<&'static str>,
    measured: Vec<&'static str>,
    kernel: Option<String>,
}

impl Versions {
    /// Versions of this build and of the kernel it runs on.
    #[must_use]
    pub fn here() -> Self {
        let mut features = Vec::new();
        if cfg!(feature = "liburcu") {
            features.push("liburcu");
        }
        Self {
            workbench: env!("CARGO_PKG_VERSION"),
            rustc: env!("RELATIVIST_RUSTC"),
            target: env!("RELATIVIST_TARGET"),
            opt_level: env!("RELATIVIST_OPT_LEVEL"),
            rustflags: env!("RELATIVIST_RUSTFLAGS"),
            debug_assertions: cfg!(debug_assertions),
            features,
            measured: env!("RELATIVIST_MEASURED").split(',').collect(),
            kernel: System::kernel_long_version().ok(),
        }
    }
}
