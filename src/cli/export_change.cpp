// See export_change.hpp.
#include "cli/export_change.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "block/desk.hpp"
#include "cli/complain.hpp"
#include "cli/output.hpp"

namespace feroce::cli {
namespace {

const ExportSpec* find(const std::vector<ExportSpec>& all, const std::string& name) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const ExportSpec& one) { return one.name == name; });
    return found == all.end() ? nullptr : &*found;
}

bool same_place_and_way(const ExportSpec& a, const ExportSpec& b) {
    return a.kind == b.kind && a.path == b.path && a.size == b.size && a.read_only == b.read_only &&
           a.direct == b.direct && a.state == b.state;
}

bool same_guests(const ExportSpec& a, const ExportSpec& b) {
    return a.sessions == b.sessions && a.addresses == b.addresses;
}

// Whether two exports are of one file or device, under whatever names.
bool of_one_file(const ExportSpec& one, const ExportSpec& other) {
    return one.file && one.file == other.file;
}

// Says once that something has not answered for so long.
class Reminder : public rdma::Timer {
public:
    Reminder(rdma::Loop& loop, const std::string& what, Duration after)
        : Timer(loop, [](Timer& self) { static_cast<Reminder&>(self).tell(); }), what_(what) {
        arm(loop.after(after));
    }

private:
    void tell() const {
        complain(what_ +
                 " does not answer; the new config waits for it, what is exported does not");
    }

    const std::string& what_;
};

// What the server has told its clients, and where it listens.
void check_settings(const ExportConfig& now, const ExportConfig& next) {
    const auto check = [](bool same, std::string_view what) {
        if (same) return;
        throw UsageError(
            fmt::format("the {} cannot be changed while the server runs; start it again", what));
    };
    check(now.address == next.address, "address");
    check(now.port == next.port, "port");
    check(now.queue_depth == next.queue_depth, "queue_depth");
    check(now.chunk_size == next.chunk_size, "chunk_size");
}

// A desk without content tells what the server's would refuse.
void check_exports(const std::vector<ExportSpec>& all) {
    block::Desk desk(0);
    for (auto one = all.begin(); one != all.end(); ++one) {
        const auto fine = desk.add(
            {one->name, block::null_backend(512), one->read_only, one->sessions, one->addresses});
        if (!fine) throw UsageError(fine.error().why);
        for (auto other = all.begin(); other != one; ++other)
            if (!one->read_only && !other->read_only && of_one_file(*one, *other))
                throw UsageError(
                    fmt::format("the exports {} and {} would write one file; make "
                                "one of them ro",
                                other->name, one->name));
    }
}

block::FileOptions options_of(const ExportSpec& spec) {
    return {.read_only = spec.read_only,
            .direct = spec.direct,
            .state = spec.state,
            .tell = [](const std::string& sentence) { complain(sentence); }};
}

// Of an export without a file.
rdma::Result<std::shared_ptr<block::Backend>> plain_backend(rdma::Loop& loop,
                                                            const ExportSpec& spec) {
    if (spec.kind == ExportSpec::Kind::Null) return block::null_backend(spec.size);
    return block::memory_backend(spec.size, loop.runtime().random() | 1);
}

rdma::Task<rdma::Result<std::shared_ptr<block::Backend>>> open_backend(rdma::Loop& loop,
                                                                       const ExportSpec& spec) {
    if (spec.kind != ExportSpec::Kind::File) co_return plain_backend(loop, spec);
    block::FileOptions options = options_of(spec);
    co_return co_await block::open_file_backend(loop, spec.path, std::move(options));
}

block::Export export_of(const ExportSpec& spec, std::shared_ptr<block::Backend> backend) {
    return {spec.name, std::move(backend), spec.read_only, spec.sessions, spec.addresses};
}

ExportChange::Reopened reopening(const ExportSpec& spec, const std::vector<ExportSpec>& withdrawn) {
    ExportChange::Reopened out{spec, {}};
    for (const ExportSpec& old : withdrawn)
        if (of_one_file(old, spec)) out.before.push_back(old);
    return out;
}

}  // namespace

std::optional<FileId> find_file(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return {};
    if (S_ISBLK(status.st_mode)) return FileId{true, status.st_rdev, 0};
    return FileId{false, status.st_dev, status.st_ino};
}

void find_files(ExportConfig& config) {
    for (ExportSpec& spec : config.exports)
        if (spec.kind == ExportSpec::Kind::File) spec.file = find_file(spec.path);
}

ExportChange compare(const ExportConfig& now, const ExportConfig& next) {
    check_settings(now, next);
    check_exports(next.exports);
    ExportChange change;
    for (const ExportSpec& old : now.exports) {
        const ExportSpec* const kept = find(next.exports, old.name);
        if (kept == nullptr || !same_place_and_way(old, *kept)) change.withdrawn.push_back(old);
    }
    for (const ExportSpec& spec : next.exports) {
        const ExportSpec* const old = find(now.exports, spec.name);
        if (old != nullptr && same_place_and_way(*old, spec)) {
            if (!same_guests(*old, spec)) change.admitting.push_back(spec);
            continue;
        }
        auto again = reopening(spec, change.withdrawn);
        if (again.before.empty())
            change.opened.push_back(spec);
        else
            change.reopened.push_back(std::move(again));
    }
    return change;
}

rdma::Result<block::Export> open_export(rdma::Loop& loop, const ExportSpec& spec) {
    auto backend = spec.kind == ExportSpec::Kind::File
                       ? block::file_backend(loop, spec.path, options_of(spec))
                       : plain_backend(loop, spec);
    if (!backend) return backend.error();
    return export_of(spec, *std::move(backend));
}

template <class T>
rdma::Task<rdma::Result<T>> ServedExports::patiently(std::string what, Instant deadline,
                                                     rdma::Task<rdma::Result<T>> task) {
    const Reminder reminder(loop_, what, patience_.before_telling);
    auto limited = std::move(task).until(deadline).with(stop_.get_token());
    auto done = co_await std::move(limited);
    if (done) co_return done;
    if (stop_.stop_requested())
        co_return rdma::Error(ECANCELED, "the server is ending and waits no longer for " + what);
    if (done.error().code == ETIMEDOUT && loop_.now() >= deadline)
        co_return rdma::Error(ETIMEDOUT, what + " does not answer; see whether its disk does");
    co_return done;
}

template <class Function>
rdma::Task<rdma::Result<std::invoke_result_t<Function>>> ServedExports::ask(std::string what,
                                                                            Instant deadline,
                                                                            Function function) {
    const block::CallOwner owner{.alone = true};
    auto call = pool_->call(owner, std::move(function));
    auto answer = patiently(std::move(what), deadline, std::move(call));
    co_return co_await std::move(answer);
}

// Files that are served already are not looked at: their disks may be dead.
rdma::Task<rdma::Result<ExportChange>> ServedExports::plan(std::function<ExportConfig()> read,
                                                           Instant deadline) {
    auto reading = ask("the config file", deadline, std::move(read));
    auto next = co_await std::move(reading);
    if (!next) co_return next.error();
    for (ExportSpec& spec : next->exports) {
        const ExportSpec* const old = find(now_.exports, spec.name);
        if (old != nullptr && same_place_and_way(*old, spec)) {
            spec.file = old->file;
        } else if (spec.kind == ExportSpec::Kind::File) {
            auto finds = [path = spec.path] { return find_file(path); };
            auto finding = ask(spec.path, deadline, std::move(finds));
            auto found = co_await std::move(finding);
            if (!found) co_return found.error();
            spec.file = *found;
        }
    }
    co_return compare(now_, *next);
}

rdma::Task<rdma::Result<ServedExports::Opening>> ServedExports::open(ExportSpec spec,
                                                                     Instant deadline) {
    auto opening = patiently(spec.path, deadline, open_backend(loop_, spec));
    auto backend = co_await std::move(opening);
    if (!backend) co_return backend.error();
    block::Export what = export_of(spec, *std::move(backend));
    co_return Opening{std::move(spec), std::move(what)};
}

rdma::Task<rdma::Result<std::vector<ServedExports::Opening>>> ServedExports::open_all(
    const std::vector<ExportSpec>& specs, Instant deadline) {
    std::vector<Opening> out;
    for (const ExportSpec& spec : specs) {
        auto opening = co_await open(spec, deadline);
        if (!opening) co_return opening.error();
        out.push_back(*std::move(opening));
    }
    co_return out;
}

rdma::Result<> ServedExports::add(Opening opening, Lines& lines) {
    const std::uint64_t size = opening.what.backend->shape().size;
    if (auto added = server_.add(std::move(opening.what)); !added) return added;
    lines.push_back(
        fmt::format("{}: {} bytes on port {}", opening.spec.name, size, server_.port()));
    now_.exports.push_back(std::move(opening.spec));
    return {};
}

void ServedExports::admit(const ExportSpec& spec, Lines& lines) {
    (void)server_.set_guests(spec.name, spec.sessions, spec.addresses);  // It was checked.
    for (ExportSpec& one : now_.exports)
        if (one.name == spec.name) one = spec;
    lines.push_back(spec.name + ": other clients may open it");
}

rdma::Task<rdma::Result<>> ServedExports::withdraw(const ExportSpec& spec, Lines& lines) {
    std::erase_if(now_.exports, [&](const ExportSpec& one) { return one.name == spec.name; });
    auto done = co_await server_.withdraw(spec.name);
    lines.push_back(spec.name + ": withdrawn");
    co_return done;
}

rdma::Task<rdma::Result<>> ServedExports::reopen(const ExportChange::Reopened& what, Lines& lines) {
    auto opening = co_await open(what.next, loop_.after(patience_.before_giving_up));
    if (opening) co_return add(*std::move(opening), lines);
    for (const ExportSpec& old : what.before) {
        if (find(now_.exports, old.name) != nullptr) continue;
        auto before = co_await open(old, loop_.after(patience_.before_giving_up));
        if (before) (void)add(*std::move(before), lines);
    }
    co_return opening.error();
}

rdma::Task<ServedExports::Outcome> ServedExports::change_to(std::function<ExportConfig()> read) {
    Outcome out;
    const auto note = [&out](const rdma::Result<>& done) {
        if (!done) out.trouble += (out.trouble.empty() ? "" : "; ") + done.error().why;
    };
    const Instant deadline = loop_.after(patience_.before_giving_up);
    rdma::Result<ExportChange> change = ExportChange{};
    try {
        change = co_await plan(std::move(read), deadline);
    } catch (const UsageError& error) {
        out.trouble = error.what();
        co_return out;
    }
    rdma::Result<std::vector<Opening>> ahead = std::vector<Opening>{};
    if (change) ahead = co_await open_all(change->opened, deadline);
    if (!change || !ahead) {
        out.trouble = change ? ahead.error().why : change.error().why;
        co_return out;
    }
    for (const ExportSpec& spec : change->admitting) admit(spec, out.lines);
    for (const ExportSpec& spec : change->withdrawn) {
        const auto done = co_await withdraw(spec, out.lines);
        note(done);
    }
    for (Opening& opening : *ahead) note(add(std::move(opening), out.lines));
    for (const ExportChange::Reopened& what : change->reopened) {
        const auto done = co_await reopen(what, out.lines);
        note(done);
    }
    co_return out;
}

}  // namespace feroce::cli
