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
};

// In the order of trust: ours, then what is specific to a launcher, then what is general.
constexpr Launcher kLaunchers[] = {
    {"FEROCE_GAS_RANK", "FEROCE_GAS_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"PMIX_RANK", "PMIX_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
};

std::optional<std::uint16_t> number(std::string_view text) {
    std::uint16_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

Result<Placement> from_launcher(Lookup lookup) {
    for (const Launcher& launcher : kLaunchers) {
        const char* rank = lookup(launcher.rank);
        const char* size = lookup(launcher.size);
        if (rank == nullptr || size == nullptr) continue;
        const auto own = number(rank);
        const auto all = number(size);
        if (!own || !all || *own >= *all)
            return Error{EINVAL,
                         "rank and size in the environment are no node of a cluster: the rank must "
                         "be smaller than the size, and the size at most 65535"};
        return Placement{.rank = *own, .size = *all, .seed = {}};
    }
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

}  // namespace

Result<Placement> placement_from_environment(Lookup lookup) {
    Result<Placement> out = from_launcher(lookup);
    if (!out) return out;
    const char* seed = lookup("FEROCE_GAS_SEED");
    if (seed == nullptr || seed[0] == '\0') {
        if (out->size > 1)
            return Error{EINVAL,
                         "there are several nodes but nobody says where the first one is: set "
                         "FEROCE_GAS_SEED=ADDRESS:PORT, an address of the machine with rank 0"};
        return out;
    }
    if (!split_seed(seed, *out))
        return Error{EINVAL, "FEROCE_GAS_SEED is not ADDRESS:PORT; IPv6 is [ADDRESS]:PORT"};
    return out;
}

Result<Placement> placement_from_environment() {
    return placement_from_environment(
        [](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace feroce::gas
