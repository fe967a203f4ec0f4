#include "cli/metrics/counter_tree.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "cli/complain.hpp"
#include "cli/metrics/end_signals.hpp"
#include "cli/metrics/names.hpp"

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kMark[] = ".feroce-metrics";  // In a folder that is ours to change.
constexpr char kSysPrefix[] = "sys/";        // Of what describe_tree() has of /sys.

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
    for (const fs::directory_entry& entry :
         fs::recursive_directory_iterator(root / "class", error)) {
        const bool folder = entry.is_directory(error) && !entry.is_symlink(error);
        if (folder)
            folders.insert(entry.path());
        else if (tree.count(entry.path().lexically_relative(root).string()) == 0)
            others.push_back(entry.path());
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
        if (path.rfind(kSysPrefix, 0) == 0) out[path.substr(sizeof kSysPrefix - 1)] = entry;
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

Result<void> CounterFolder::claim() {
    std::error_code error;
    fs::create_directories(root_, error);
    if (error) return error_of("the folder cannot be made", error);
    const fs::path mark = fs::path(root_) / kMark;
    const bool ours = fs::exists(mark, error);
    if (!ours && !fs::is_empty(root_, error))
        return error ? error_of("the folder cannot be read", error)
                     : Error{ENOTEMPTY, "the folder has files that feroce metrics did not write"};
    if (!replace_file(mark, "A tree of feroce metrics, which changes and removes what is here.\n"))
        return Error{EACCES, "the folder cannot be written to"};
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
