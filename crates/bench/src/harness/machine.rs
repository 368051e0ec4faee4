//! The machine and the versions of a measurement, without which its numbers cannot be judged.

use std::fmt;

use serde::{Deserialize, Serialize};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::harness::workers::Cpus;

/// The machine as the operating system describes it; unknown fields are `null` in JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    cpu: Option<String>,
    cpus_online: Option<usize>,
    cpus_allowed: usize,
    memory_bytes: Option<u64>,
    load_average_1min: Option<f64>,
}

impl Machine {
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

    /// Returns a short name of the processor.
    pub fn processor(&self) -> String {
        let brand = self.cpu.as_deref().filter(|cpu| !cpu.is_empty()).unwrap_or("unknown processor");
        brand.replace("(R)", "").replace(" Processor", "")
    }

    /// Returns the bytes of memory, if known.
    pub fn memory(&self) -> Option<u64> {
        self.memory_bytes
    }

    /// Returns the load average of the last minute, if it is high enough to disturb measurements.
    pub fn disturbance(&self) -> Option<f64> {
        self.load_average_1min.filter(|&load| load > 0.3)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu.as_deref().filter(|cpu| !cpu.is_empty()).unwrap_or("unknown processor");
        write!(f, "{cpu}, {} CPUs", self.cpus_allowed)?;
        self.memory_bytes.map_or(Ok(()), |bytes| write!(f, ", {} GiB", (bytes as f64 / 1_073_741_824.0).round()))
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
    /// Returns the versions of this build and of the running kernel.
    pub fn here() -> Self {
        let features = [("liburcu", cfg!(feature = "liburcu")), ("boost", cfg!(feature = "boost"))];
        let features = features.into_iter().filter_map(|(name, built)| built.then_some(name)).collect();
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

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.measured.join(", "), self.rustc)?;
        if !self.rustflags.is_empty() {
            write!(f, " {}", self.rustflags)?;
        }
        self.kernel.as_ref().map_or(Ok(()), |kernel| write!(f, "; {kernel}"))
    }
}
