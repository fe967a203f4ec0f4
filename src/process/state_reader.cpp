// Reading the pages of all processes of a user. Nothing here maps page contents, so a page that
// shrinks under us is a short read and not a signal; only the futex words are mapped, and those
// only the kernel touches.
#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <climits>
#include <ctime>
#include <functional>
#include <utility>

#include "process/state_layout.hpp"
#include "process/state_page.hpp"

namespace feroce::process {
namespace {

using std::chrono::nanoseconds;

// Pages of ended processes that are kept, the youngest: of those that tell of a failure, and of the
// others, which tell that a process was killed or what it noticed.
constexpr std::size_t kFailedPagesMax = 32;
constexpr std::size_t kOtherPagesMax = 16;
constexpr int kTriesMax = 100;
constexpr std::size_t kWordsBytes = kConnectionsOffset;  // The words that futexes need.

nanoseconds monotonic() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

StateReason reason_of(const PageNote& note) {
    StateReason out;
    out.qpn = note.qpn;
    out.peer_qpn = note.peer_qpn;
    out.psn = note.psn;
    out.kind = static_cast<StateReasonKind>(note.kind);
    out.peer_silent = note.peer_silent != 0;
    out.with_peer = note.with_peer != 0;
    out.minor = note.minor != 0;
    out.source = note.source;
    out.destination = note.destination;
    out.sentence.assign(note.text.data(), std::min<std::size_t>(note.length, note.text.size()));
    for (char& c : out.sentence)
        if (c < ' ' || c > '~') c = '?';
    if (note.count > 1) out.sentence += ", " + std::to_string(note.count) + " times";
    return out;
}

class PageFile {
public:
    PageFile(std::string path, std::uint32_t user, int flags) : path_(std::move(path)) {
        fd_ = ::open(path_.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        struct stat info {};
        const bool ours =
            fd_ >= 0 && ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == user;
        changed_ = info.st_mtim;
        if (!ours && fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    ~PageFile() {
        if (words_ != MAP_FAILED) ::munmap(words_, kWordsBytes);
        if (fd_ >= 0) ::close(fd_);
    }
    PageFile(PageFile&& other) noexcept
        : path_(std::move(other.path_)),
          fd_(std::exchange(other.fd_, -1)),
          words_(std::exchange(other.words_, MAP_FAILED)),
          asked_at_(other.asked_at_),
          changed_(other.changed_) {}
    PageFile& operator=(PageFile&&) = delete;

    bool valid() const { return fd_ >= 0; }
    const std::string& path() const { return path_; }
    std::int64_t changed_ns() const { return changed_.tv_sec * 1'000'000'000LL + changed_.tv_nsec; }

    bool alive() const {
        struct flock lock {};
        lock.l_type = F_WRLCK;
        return ::fcntl(fd_, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    }

    void ask() {
        asked_at_ = word(kSequenceOffset).value_or(0);
        words_ = ::mmap(nullptr, kWordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (words_ == MAP_FAILED) return;
        // Two readers that write the same number are one request; both are served by its answer.
        const std::uint32_t request = word(kRequestOffset).value_or(0) + 1;
        (void)!::pwrite(fd_, &request, sizeof request, kRequestOffset);
        ::syscall(SYS_futex, at(kRequestOffset), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }

    // Whether the owner has written since ask().
    bool await_answer(nanoseconds until) const {
        if (words_ == MAP_FAILED) return false;
        for (;;) {
            const std::uint32_t sequence = word(kSequenceOffset).value_or(asked_at_);
            if (sequence != asked_at_ && sequence % 2 == 0) return true;
            const nanoseconds left = until - monotonic();
            if (left <= nanoseconds(0)) return false;
            const timespec limit{static_cast<time_t>(left.count() / 1'000'000'000),
                                 static_cast<long>(left.count() % 1'000'000'000)};
            ::syscall(SYS_futex, at(kSequenceOffset), FUTEX_WAIT, sequence, &limit, nullptr, 0);
        }
    }

    // With what was written at once since.
    std::optional<StateSnapshot> snapshot() const {
        std::optional<StateSnapshot> out = last_snapshot();
        if (out) add_notes(*out);
        return out;
    }

    std::vector<Connection> connections() const {
        std::array<std::uint64_t, kConnections> table{};
        (void)!::pread(fd_, table.data(), sizeof table, kConnectionsOffset);
        std::vector<Connection> out;
        for (const std::uint64_t entry : table)
            if (entry != 0)
                out.push_back(
                    {static_cast<std::uint32_t>(entry), static_cast<std::uint32_t>(entry >> 32)});
        return out;
    }

private:
    std::optional<StateSnapshot> last_snapshot() const {
        for (int i = 0; i < kTriesMax; ++i) {
            const auto before = word(kSequenceOffset);
            if (!before || *before == 0) return std::nullopt;
            // acquire, twice: the numbers are read outside of what lies between them.
            std::atomic_thread_fence(std::memory_order_acquire);
            const auto bytes = read_snapshot();
            std::atomic_thread_fence(std::memory_order_acquire);
            if (*before % 2 == 0 && word(kSequenceOffset) == before)
                return bytes ? decode(*bytes) : std::nullopt;
        }
        return std::nullopt;
    }

    void add_notes(StateSnapshot& out) const {
        std::array<PageNote, kNotes> before, after;
        const auto read = [this](auto& notes) {
            return ::pread(fd_, notes.data(), sizeof notes, kNotesOffset) == sizeof notes;
        };
        if (!read(before)) return;
        std::atomic_thread_fence(std::memory_order_acquire);
        if (!read(after)) return;
        for (std::size_t i = 0; i < kNotes; ++i) {
            const PageNote& note = before[i];
            if (note.sequence == 0 || note.sequence % 2 != 0 || after[i].sequence != note.sequence)
                continue;
            StateReason reason = reason_of(note);
            const auto same = [&reason](const StateReason& r) {
                return r.qpn == reason.qpn && r.sentence == reason.sentence;
            };
            if (std::none_of(out.reasons.begin(), out.reasons.end(), same))
                out.reasons.push_back(std::move(reason));
        }
    }

    std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(words_) + offset; }
    std::optional<std::uint32_t> word(std::size_t offset) const {
        std::uint32_t value = 0;
        const ssize_t got = ::pread(fd_, &value, sizeof value, static_cast<off_t>(offset));
        return got == sizeof value ? std::optional(value) : std::nullopt;
    }
    std::optional<std::vector<std::byte>> read_snapshot() const {
        const std::uint32_t length = word(kLengthOffset).value_or(0);
        if (length > kSnapshotMax) return std::nullopt;
        std::vector<std::byte> bytes(length);
        const ssize_t got = ::pread(fd_, bytes.data(), bytes.size(), kSnapshotOffset);
        if (got != static_cast<ssize_t>(bytes.size())) return std::nullopt;
        return bytes;
    }

    std::string path_;
    int fd_ = -1;
    void* words_ = MAP_FAILED;
    std::uint32_t asked_at_ = 0;
    timespec changed_{};
};

std::vector<PageFile> open_pages(const std::string& directory, std::uint32_t user, int flags) {
    std::vector<PageFile> pages;
    // Our own page is left alone: closing a second descriptor would drop its lock.
    const std::string own = std::to_string(::getpid());
    DIR* list = ::opendir(directory.c_str());
    if (list == nullptr) return pages;
    while (const dirent* entry = ::readdir(list)) {
        if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
        if (entry->d_name == own) continue;
        PageFile page(directory + "/" + entry->d_name, user, flags);
        if (page.valid()) pages.push_back(std::move(page));
    }
    ::closedir(list);
    return pages;
}

}  // namespace

namespace {

bool tells_of_failure(const StateSnapshot& snapshot) {
    return std::any_of(snapshot.reasons.begin(), snapshot.reasons.end(), [](const StateReason& r) {
        return r.kind == StateReasonKind::Failure || r.kind == StateReasonKind::Refusal;
    });
}

using DatedPath = std::pair<std::int64_t, std::string>;

void keep_youngest(std::vector<DatedPath>& pages, std::size_t count) {
    std::sort(pages.begin(), pages.end(), std::greater<>());
    for (std::size_t i = count; i < pages.size(); ++i) ::unlink(pages[i].second.c_str());
}

}  // namespace

void prune_dead_pages(const std::string& directory, std::uint32_t user) {
    std::vector<DatedPath> failed;
    std::vector<DatedPath> others;
    for (const PageFile& page : open_pages(directory, user, O_RDONLY)) {
        if (page.alive()) continue;
        if (const auto snapshot = page.snapshot())
            (tells_of_failure(*snapshot) ? failed : others)
                .emplace_back(page.changed_ns(), page.path());
        else
            ::unlink(page.path().c_str());
    }
    keep_youngest(failed, kFailedPagesMax);
    keep_youngest(others, kOtherPagesMax);
}

std::vector<StateReading> read_state_pages(std::uint32_t user, std::chrono::milliseconds patience) {
    const Result<std::string> directory = existing_directory(user);
    if (!directory) return {};
    prune_dead_pages(*directory, user);
    std::vector<PageFile> pages = open_pages(*directory, user, O_RDWR);
    std::vector<StateReading> out;
    for (PageFile& page : pages)
        if (page.alive()) page.ask();
    const nanoseconds until = monotonic() + patience;
    for (const PageFile& page : pages) {
        const bool alive = page.alive();
        const bool fresh = alive && page.await_answer(until);
        if (auto snapshot = page.snapshot())
            out.push_back({.changed_ns = page.changed_ns(),
                           .alive = alive,
                           .fresh = fresh,
                           .snapshot = std::move(*snapshot),
                           .connections = page.connections()});
    }
    std::sort(out.begin(), out.end(), [](const StateReading& a, const StateReading& b) {
        return a.snapshot.pid < b.snapshot.pid;
    });
    return out;
}

bool answers(const StateReason& reason, const StateReason& failure) {
    if (failure.kind != StateReasonKind::Failure || reason.qpn != failure.peer_qpn) return false;
    const bool knows_peer = reason.peer_qpn == failure.qpn;
    if (!knows_peer && reason.peer_qpn != 0) return false;
    if (!reason.destination.is_zero() && !failure.source.is_zero() &&
        reason.destination != failure.source)
        return false;
    switch (reason.kind) {
        case StateReasonKind::Refusal:
            return reason.psn == failure.psn;
        case StateReasonKind::Notice:
            return failure.peer_silent;
        case StateReasonKind::Failure:
            return failure.peer_silent && knows_peer && !reason.peer_silent;
        default:
            return false;
    }
}

}  // namespace feroce::process
