#include "process/log.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>

#include "base/environment.hpp"
#include "process/process.hpp"

namespace feroce::process {
namespace {

constexpr int kUnknown = -1;
constexpr const char* kNames[] = {"off", "error", "warn", "info", "debug"};

std::optional<LogLevel> level_from_environment() {
    const char* wanted = environment("FEROCE_LOG");
    if (wanted == nullptr || *wanted == '\0') return LogLevel::Error;
    for (std::size_t i = 0; i < std::size(kNames); ++i)
        if (std::strcmp(wanted, kNames[i]) == 0) return static_cast<LogLevel>(i);
    return std::nullopt;
}

}  // namespace

bool log_level_is_known() {
    return level_from_environment().has_value();
}

bool log_enabled(LogLevel level) {
    // Made by the loader, so that no fork finds it half made. Every thread that looks first
    // comes to the same answer, hence relaxed.
    static constinit std::atomic<int> limit{kUnknown};
    if (limit.load(std::memory_order_relaxed) == kUnknown)
        limit.store(static_cast<int>(level_from_environment().value_or(LogLevel::Error)),
                    std::memory_order_relaxed);
    return static_cast<int>(level) <= limit.load(std::memory_order_relaxed);
}

void log(LogLevel level, const char* format, ...) {
    if (!log_enabled(level)) return;
    char line[512];
    const int head =
        std::snprintf(line, sizeof line, "feroce: %s: ", kNames[static_cast<std::uint8_t>(level)]);
    va_list arguments;
    va_start(arguments, format);
    const int body = std::vsnprintf(line + head, sizeof line - static_cast<std::size_t>(head) - 1,
                                    format, arguments);
    va_end(arguments);
    std::size_t length =
        static_cast<std::size_t>(head) + static_cast<std::size_t>(body > 0 ? body : 0);
    if (length > sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    // One write a line, so that lines of several processes do not mix. Under locks, so no
    // cancellation point.
    ::syscall(SYS_write, STDERR_FILENO, line, length);
}

namespace {

constinit std::atomic<RefusalKeeper> refusal_keeper{nullptr};  // Constant once set.

int refuse_about(const char* call, const Error& error, const transport::QueuePair* qp) {
    log(LogLevel::Warn, "%s: %s (%s)", call, error.why, ::strerrorname_np(error.code));
    if (Process* process = Process::current(); process != nullptr)
        process->note_refusal(call, error, qp);
    else if (const RefusalKeeper keeper = refusal_keeper.load(); keeper != nullptr)
        keeper(call, error);
    errno = error.code;
    return error.code;
}

}  // namespace

void keep_refusals(RefusalKeeper keeper) {
    refusal_keeper.store(keeper);
}

int refuse(const char* call, const Error& error) {
    return refuse_about(call, error, nullptr);
}

int refuse(const char* call, const Error& error, const transport::QueuePair& about) {
    return refuse_about(call, error, &about);
}

}  // namespace feroce::process
