#include "verbs/settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "port/interfaces.hpp"
#include "process/call_faults.hpp"
#include "process/log.hpp"

namespace feroce::verbs {
namespace {

std::string setting(const char* name) {
    const char* value = environment(name);
    return value == nullptr ? "" : value;
}

std::optional<std::uint32_t> number_in(const std::string& text, std::uint32_t least,
                                       std::uint32_t most) {
    std::uint32_t out = 0;
    const char* const end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data(), end, out);
    if (error != std::errc{} || last != end || out < least || out > most) return std::nullopt;
    return out;
}

// One thread is fastest with one shard. More are added as it seems that more threads have come: two
// threads that share one wait for each other's copies. Half of the cores, because what they send is
// often received on the same machine. A program that is told how many gets them from the start.
Error read_shards(Settings& out) {
    const std::string wanted = setting("FEROCE_SHARDS");
    if (wanted.empty()) {
        constexpr long kMost = process::Process::kShardsMax;
        const long half = std::clamp(::sysconf(_SC_NPROCESSORS_ONLN) / 2, 1L, kMost);
        out.wishes.shards_max = static_cast<std::uint32_t>(half);
        return {};
    }
    const auto count = number_in(wanted, 1, process::Process::kShardsMax);
    if (!count) return {EINVAL, "FEROCE_SHARDS is not a number from 1 to 8"};
    out.wishes.shards = *count;
    return {};
}

Error read_sharing(Settings& out) {
    const std::string wanted = setting("FEROCE_SHARE");
    if (wanted == "user")
        out.host.sharing = port::Sharing::User;
    else if (wanted == "any")
        out.host.sharing = port::Sharing::Any;
    else if (!wanted.empty())
        return {EINVAL, "FEROCE_SHARE is neither user nor any"};
    return {};
}

Error read_faults(Settings& out) {
    const std::string wanted = setting("FEROCE_FAULTS");
    if (wanted.empty()) return {};
    // Faults of calls are taken from the environment by each library: see process/injected.hpp.
    const Result<process::FaultPlan> plan = process::plan_faults(wanted);
    if (!plan) return plan.error();
    const auto packets = port::parse_faults(plan->packets);
    // Only faults of packets keep traffic off the rings.
    if (packets && (plan->has_packets || plan->calls.empty())) out.host.faults = packets;
    if (packets) return {};
    return {EINVAL, "FEROCE_FAULTS has an unknown name, or a number that cannot be; see feroce(1)"};
}

Error read_keepalive(Settings& out) {
    constexpr std::uint32_t kDefault = 15, kDay = 86'400;
    const std::string wanted = setting("FEROCE_KEEPALIVE");
    const auto seconds = wanted.empty() ? kDefault : number_in(wanted, 0, kDay);
    if (!seconds) return {EINVAL, "FEROCE_KEEPALIVE is not a number of seconds from 0 to 86400"};
    out.wishes.keepalive = std::chrono::seconds(*seconds);
    return {};
}

// Whether processes that share the port send to each other by memory.
Error read_rings(Settings& out) {
    const std::string wanted = setting("FEROCE_SAMEHOST");
    out.host.rings = wanted != "off";
    if (wanted.empty() || wanted == "on" || wanted == "off") return {};
    return {EINVAL, "FEROCE_SAMEHOST is neither on nor off"};
}

// What reliable connections do after a loss.
Error read_repair(Settings& out) {
    const std::string wanted = setting("FEROCE_REPAIR");
    out.wishes.repairs = wanted != "off";
    if (wanted.empty() || wanted == "on" || wanted == "off") return {};
    return {EINVAL, "FEROCE_REPAIR is neither on nor off"};
}

// How much memory rings may have by which this process sends.
Error read_ring_memory(Settings& out) {
    const std::string wanted = setting("FEROCE_RING_MEMORY");
    if (wanted.empty()) return {};
    const auto mib = number_in(wanted, 0, 1 << 20);
    if (!mib) return {EINVAL, "FEROCE_RING_MEMORY is not a number of MiB from 0 to 1048576"};
    out.host.ring_memory = std::size_t{*mib} << 20;
    return {};
}

Error read_log(Settings&) {
    if (process::log_level_is_known()) return {};
    return {EINVAL, "FEROCE_LOG is none of off, error, warn, info and debug"};
}

Error read_lint_word(std::string_view word, LintWishes& out) {
    constexpr std::string_view kCard = "card=";
    if (word == "warn")
        out.mode = LintMode::Warn;
    else if (word == "abort")
        out.mode = LintMode::Abort;
    else if (word == "order")
        out.any_order = true;
    else if (word.starts_with(kCard))
        out.card = lint::find_card(word.substr(kCard.size()));
    else
        return {EINVAL, "FEROCE_LINT is none of off, warn, abort, order and card=NAME"};
    if (word.starts_with(kCard) && out.card == nullptr)
        return {EINVAL, "FEROCE_LINT knows the cards mlx5, rxe and efa"};
    return {};
}

// Words with commas between them: warn,card=mlx5.
Error read_lint(Settings& out) {
    const std::string wanted = setting("FEROCE_LINT");
    if (wanted.empty() || wanted == "off") return {};
    LintWishes& lint = out.wishes.lint;
    for (std::size_t at = 0; at <= wanted.size();) {
        const std::size_t end = std::min(wanted.find(',', at), wanted.size());
        const Error refused = read_lint_word(std::string_view(wanted).substr(at, end - at), lint);
        if (refused.code != 0) return refused;
        at = end + 1;
    }
    if (lint.mode == LintMode::Off) lint.mode = LintMode::Warn;
    return {};
}

Error read_names(Settings& out) {
    const std::string wanted = setting("FEROCE_NAME");
    if (wanted.empty()) return {};
    const auto names = DeviceNames::parse(wanted);
    if (!names)
        return {EINVAL,
                "FEROCE_NAME is not a name of letters, digits, _ and - with one %d or %s in it"};
    out.wishes.names = *names;
    return {};
}

}  // namespace

Settings read_settings() {
    Settings out;
    out.host.devices = setting("FEROCE_DEVICES");
    out.wishes.chooses_devices = !out.host.devices.empty();
    out.host.loopback_named = port::program_names("feroce_lo");
    out.host.capture_path = setting("FEROCE_PCAP");
    for (const auto read : {read_shards, read_sharing, read_faults, read_keepalive, read_rings,
                            read_repair, read_ring_memory, read_log, read_lint, read_names})
        if (const Error refused = read(out); refused.code != 0 && out.wishes.refusal.code == 0)
            out.wishes.refusal = refused;
    return out;
}

}  // namespace feroce::verbs
