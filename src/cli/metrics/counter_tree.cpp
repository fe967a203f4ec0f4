#include "cli/metrics/counter_tree.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>

#include "cli/complain.hpp"
#include "cli/http/end_signals.hpp"
#include "cli/metrics/names.hpp"

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kMark[] = ".feroce-metrics";  // In a folder that is ours to change.
constexpr std::string_view kSys = "sys/";    // Of what describe_tree() has of /sys.
constexpr std::string_view kClasses = "sys/class/";

Error error_of(const char* what, const std::error_code& code) {
    return Error{code.value() == 0 ? EIO : code.value(), what};
}

// Beside the file, then in its place.
bool replace_file(const fs::path& path, const std::string& text) {
    const fs::path draft = path.parent_path() / fmt::format(".draft-{}", ::getpid());
    std::ofstream file(draft);
    file << text;
    file.close();
    std::error_code error;
    if (file) fs::rename(draft, path, error);
    const bool done = static_cast<bool>(file) && !error;
    if (!done) fs::remove(draft, error);
    return done;
}

bool write_entry(const fs::path& path, const TreeEntry& entry) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) return false;
    if (!entry.link) return replace_file(path, entry.text);
    fs::remove(path, error);
    fs::create_symlink(entry.text, path, error);
    return !error;
}

// Folders go by themselves once they are empty: the deepest come first.
void remove_others(const fs::path& root, const Tree& tree) {
    std::error_code error;
    std::vector<fs::path> others;
    std::set<fs::path, std::greater<>> folders;
    fs::recursive_directory_iterator entry(root / "class", error);
    for (; !error && entry != fs::end(entry); entry.increment(error)) {
        std::error_code unread;
        const bool folder = entry->is_directory(unread) && !entry->is_symlink(unread);
        if (folder)
            folders.insert(entry->path());
        else if (tree.count(entry->path().lexically_relative(root).string()) == 0)
            others.push_back(entry->path());
    }
    if (others.empty()) return;
    for (const fs::path& path : others) fs::remove(path, error);
    for (const fs::path& path : folders) fs::remove(path, error);  // Fails unless it is empty.
}

}  // namespace

Tree describe_counters(const std::vector<DeviceInfo>& devices,
                       const std::map<std::string, Counts>& counts) {
    Tree out;
    for (auto& [path, entry] : describe_tree(devices))
        if (path.starts_with(kClasses)) out[path.substr(kSys.size())] = entry;
    const Counts none;
    for (const DeviceInfo& device : devices) {
        const auto found = counts.find(device.name);
        const Counts& own = found == counts.end() ? none : found->second;
        const std::string port = "class/infiniband/" + device.name + "/ports/1/";
        for (const PortCounter& counter : port_counters())
            out[port + "counters/" + counter.file] = {
                .link = false, .text = fmt::format("{}\n", counter.value(own) / counter.unit)};
        for (const KnownCounter& counter : known_counters())
            out[port + "hw_counters/" + counter.file] = {
                .link = false, .text = fmt::format("{}\n", value_of(counter, own))};
    }
    return out;
}

CounterFolder::~CounterFolder() {
    if (mark_ >= 0) ::close(mark_);
}

// Root may be told to use a folder in /tmp: what another user has put there, or could put there
// later, would lead its writes and removals elsewhere.
Result<void> CounterFolder::make() const {
    std::error_code error;
    const fs::path root = root_;
    if (fs::create_directories(root, error)) fs::permissions(root, fs::perms(0755), error);
    if (error) return error_of("the folder cannot be made", error);
    struct stat found {};
    if (::lstat(root_.c_str(), &found) != 0) return Error{errno, "the folder cannot be read"};
    if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 022) != 0)
        return Error{EPERM, "this is no folder that you alone can write to"};
    const fs::path mark = root / kMark;
    const bool ours = fs::is_regular_file(fs::symlink_status(mark, error));
    const bool has_link = fs::is_symlink(fs::symlink_status(root / "class", error));
    if ((!ours || has_link) && !fs::is_empty(root, error))
        return error ? error_of("the folder cannot be read", error)
                     : Error{ENOTEMPTY, "the folder has files that feroce metrics did not write"};
    return {};
}

Result<void> CounterFolder::claim() {
    if (auto made = make(); !made) return made;
    constexpr std::string_view kText =
        "A tree of feroce metrics, which changes and removes what is here.\n";
    const std::string mark = fs::path(root_) / kMark;
    mark_ = ::open(mark.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (mark_ < 0 || ::pwrite(mark_, kText.data(), kText.size(), 0) < 0)
        return Error{errno, "the folder cannot be written to"};
    if (::flock(mark_, LOCK_EX | LOCK_NB) != 0)
        return Error{EBUSY, "another feroce metrics writes to this folder"};
    return {};
}

Result<void> CounterFolder::write(const Tree& tree) {
    for (const auto& [path, entry] : tree) {
        const auto before = written_.find(path);
        if (before != written_.end() && before->second.link == entry.link &&
            before->second.text == entry.text)
            continue;
        if (!write_entry(fs::path(root_) / path, entry))
            return Error{EIO, "the counters cannot be written"};
    }
    remove_others(root_, tree);
    written_ = tree;
    return {};
}

int write_counters(const MetricsOptions& options) {
    const EndSignals signals;
    Collector collector(options);
    CounterFolder folder(options.sysfs);
    Result<void> done = folder.claim();
    for (bool first = true; done; first = false) {
        collector.look();
        done = folder.write(describe_counters(list_devices(), collector.ledger().devices()));
        if (!done) break;
        if (first) {
            fmt::print("counters in {}/class/infiniband\n", options.sysfs);
            std::fflush(stdout);
        }
        if (options.every == 0 || signals.wait(std::chrono::seconds(options.every))) return 0;
    }
    return complain(fmt::format("{}: {}", options.sysfs, done.error().why));
}

}  // namespace feroce::cli
