#include "feroce/gas/placement.hpp"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

namespace feroce::gas {
namespace {

struct Launcher {
    const char* rank;
    const char* size;
    const char* only_if = nullptr;  // Also set; else what the launcher gives is not believed.
};

// In the order of trust: ours, then what the innermost launcher gives. Slurm is last, since others
// are started by it. PMIx gives its rank in the environment, but no size.
constexpr Launcher kLaunchers[] = {
    {"FEROCE_GAS_RANK", "FEROCE_GAS_SIZE"},
    {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
    {"RANK", "WORLD_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
    // Indexed jobs of Kubernetes do not say how many there are.
    {"JOB_COMPLETION_INDEX", "FEROCE_GAS_SIZE"},
};

// What only a process of a cluster has, though it does not tell which one it is or of how many.
constexpr const char* kSigns[] = {
    "FEROCE_GAS_RANK", "FEROCE_GAS_SIZE",      "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
    "PMIX_RANK",       "JOB_COMPLETION_INDEX", "TORCHELASTIC_RUN_ID",  "RANK",
    "SLURM_PROCID",    "FLUX_TASK_RANK",       "ALPS_APP_PE",          "PALS_RANKID",
};

std::optional<std::uint16_t> number(std::string_view text) {
    std::uint16_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

// The value of a variable that is set and not empty, else null.
const char* variable(Lookup lookup, const char* name) {
    const char* value = name == nullptr ? nullptr : lookup(name);
    return value == nullptr || value[0] == '\0' ? nullptr : value;
}

Result<Placement> placement_of(const char* rank, const char* size) {
    const auto own = number(rank);
    const auto all = number(size);
    if (!own || !all || *own >= *all)
        return Error{EINVAL,
                     "rank and size in the environment are no node of a cluster: the rank must "
                     "be smaller than the size, and the size at most 65535"};
    return Placement{.rank = *own, .size = *all, .seed = {}};
}

// The pods of a StatefulSet are called NAME-0, NAME-1 and so on; with setHostnameAsFQDN the name of
// the service and the domain follow. Empty: it is none.
std::string ordinal_of_pod(Lookup lookup) {
    if (variable(lookup, "KUBERNETES_SERVICE_HOST") == nullptr) return {};
    const char* host = variable(lookup, "HOSTNAME");
    if (host == nullptr) return {};
    const std::string_view name(host, std::strcspn(host, "."));
    const std::size_t dash = name.rfind('-');
    if (dash == std::string_view::npos || !number(name.substr(dash + 1))) return {};
    return std::string(name.substr(dash + 1));
}

Result<Placement> from_launcher(Lookup lookup) {
    for (const Launcher& launcher : kLaunchers) {
        if (launcher.only_if != nullptr && variable(lookup, launcher.only_if) == nullptr) continue;
        const char* rank = variable(lookup, launcher.rank);
        const char* size = variable(lookup, launcher.size);
        if (rank != nullptr && size != nullptr) return placement_of(rank, size);
    }
    const char* size = variable(lookup, "FEROCE_GAS_SIZE");
    const std::string pod = ordinal_of_pod(lookup);
    if (size != nullptr && !pod.empty()) return placement_of(pod.c_str(), size);
    if (!pod.empty() && variable(lookup, "FEROCE_GAS_SEED") != nullptr)
        return Error{EINVAL,
                     "this pod has a number and the address of a first node, but nobody says how "
                     "many nodes there are: set FEROCE_GAS_SIZE to the replicas of its StatefulSet "
                     "(1 for a pod on its own)"};
    for (const char* sign : kSigns)
        if (variable(lookup, sign) != nullptr)
            return Error{EINVAL,
                         "the environment looks like a cluster's, but does not tell rank and size "
                         "in a way that is known: set FEROCE_GAS_RANK and FEROCE_GAS_SIZE (0 and 1 "
                         "for a process on its own)"};
    // As in a shell of salloc, from where srun was forgotten.
    for (const char* name : {"WORLD_SIZE", "SLURM_NTASKS"})
        if (const char* all = variable(lookup, name); all != nullptr && number(all) != 1)
            return Error{EINVAL,
                         "the environment has a number of processes but no rank, so the launcher "
                         "has not started this one: use srun, mpiexec, torchrun or feroce launch, "
                         "or set FEROCE_GAS_RANK=0 and FEROCE_GAS_SIZE=1"};
    return Placement{};
}

// ADDRESS, ADDRESS:PORT, [ADDRESS]:PORT or a bare IPv6 address, which has several colons.
bool split_seed(std::string_view text, Placement& out) {
    const std::size_t colon = text.rfind(':');
    const bool bracketed = text.starts_with('[');
    const bool has_port =
        colon != std::string_view::npos &&
        (bracketed ? colon > 0 && text[colon - 1] == ']' : text.find(':') == colon);
    std::string_view address = has_port ? text.substr(0, colon) : text;
    if (has_port) {
        const auto port = number(text.substr(colon + 1));
        if (!port || *port == 0) return false;
        out.port = *port;
    }
    if (bracketed) {
        if (address.size() < 3 || !address.ends_with(']')) return false;
        address = address.substr(1, address.size() - 2);
    }
    out.seed = address;
    return !address.empty();
}

// The first of a list of machines as Slurm writes it: a[01-03,7],b is a01, a02, a03, a7, b.
std::string first_host(std::string_view list) {
    const std::size_t end = list.find_first_of(",[");
    std::string out(list.substr(0, end));
    if (end == std::string_view::npos || list[end] == ',') return out;
    const std::string_view range = list.substr(end + 1);
    out += range.substr(0, range.find_first_of(",-]"));
    const std::size_t closed = list.find(']');
    if (closed == std::string_view::npos) return {};
    const std::string_view rest = list.substr(closed + 1);
    return out + std::string(rest.substr(0, rest.find(',')));
}

// Where launchers say that the process with rank 0 is.
std::string seed_of_launcher(Lookup lookup) {
    if (const char* address = variable(lookup, "MASTER_ADDR")) {  // torchrun
        const char* port = variable(lookup, "MASTER_PORT");
        const bool ipv6 = std::strchr(address, ':') != nullptr;
        // By appending: g++ 12 takes a sum that begins with a literal for an overflow at -O3.
        std::string host = ipv6 ? "[" : "";
        host += address;
        if (ipv6) host += "]";
        return port == nullptr ? host : host + ":" + port;
    }
    // srun starts rank 0 on the first machine, but for an arbitrary distribution.
    if (const char* machines = variable(lookup, "SLURM_STEP_NODELIST")) return first_host(machines);
    return {};
}

}  // namespace

Result<Placement> placement_from_environment(Lookup lookup) {
    Result<Placement> out = from_launcher(lookup);
    if (!out) return out;
    const char* own = variable(lookup, "FEROCE_GAS_SEED");
    const std::string seed = own != nullptr ? own : out->size > 1 ? seed_of_launcher(lookup) : "";
    if (seed.empty()) {
        if (out->size > 1)
            return Error{EINVAL,
                         "there are several nodes, but the first one's address is not set: set "
                         "FEROCE_GAS_SEED=HOST:PORT, a name or an address of the machine with "
                         "rank 0"};
        return out;
    }
    if (!split_seed(seed, *out))
        return Error{EINVAL, "FEROCE_GAS_SEED is not HOST:PORT; IPv6 is [ADDRESS]:PORT"};
    return out;
}

Result<Placement> placement_from_environment() {
    return placement_from_environment(
        [](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace feroce::gas
