// See export_change.hpp.
#include "cli/export_change.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
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

rdma::Result<std::shared_ptr<block::Backend>> open_backend(rdma::Loop& loop,
                                                           const ExportSpec& spec) {
    switch (spec.kind) {
        case ExportSpec::Kind::Memory:
            return block::memory_backend(spec.size, loop.runtime().random() | 1);
        case ExportSpec::Kind::Null:
            return block::null_backend(spec.size);
        case ExportSpec::Kind::File:
            break;
    }
    return block::file_backend(loop, spec.path,
                               {.read_only = spec.read_only,
                                .direct = spec.direct,
                                .state = spec.state,
                                .tell = [](const std::string& sentence) { complain(sentence); }});
}

}  // namespace

bool of_one_file(const ExportSpec& one, const ExportSpec& other) {
    struct stat a {
    }, b{};
    if (one.kind != ExportSpec::Kind::File || other.kind != ExportSpec::Kind::File ||
        ::stat(one.path.c_str(), &a) != 0 || ::stat(other.path.c_str(), &b) != 0)
        return false;
    if (S_ISBLK(a.st_mode) && S_ISBLK(b.st_mode)) return a.st_rdev == b.st_rdev;
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
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
        if (old == nullptr || !same_place_and_way(*old, spec))
            change.opened.push_back(spec);
        else if (!same_guests(*old, spec))
            change.admitting.push_back(spec);
    }
    return change;
}

rdma::Result<block::Export> open_export(rdma::Loop& loop, const ExportSpec& spec) {
    auto backend = open_backend(loop, spec);
    if (!backend) return backend.error();
    return block::Export{spec.name, *std::move(backend), spec.read_only, spec.sessions,
                         spec.addresses};
}

rdma::Result<std::vector<ServedExports::Opening>> ServedExports::open_ahead(ExportChange& change) {
    std::vector<Opening> out;
    std::vector<ExportSpec> late;
    for (ExportSpec& spec : change.opened) {
        const bool held = std::any_of(change.withdrawn.begin(), change.withdrawn.end(),
                                      [&](const auto& old) { return of_one_file(old, spec); });
        if (held) {
            late.push_back(std::move(spec));
            continue;
        }
        auto what = open_export(loop_, spec);
        if (!what) return what.error();
        out.push_back({std::move(spec), *std::move(what)});
    }
    change.opened = std::move(late);
    return out;
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

rdma::Result<> ServedExports::open_late(const ExportSpec& spec, const ExportChange& change,
                                        Lines& lines) {
    auto what = open_export(loop_, spec);
    if (what) return add({spec, *std::move(what)}, lines);
    for (const ExportSpec& old : change.withdrawn) {
        if (!of_one_file(old, spec) || find(now_.exports, old.name) != nullptr) continue;
        if (auto before = open_export(loop_, old)) (void)add({old, *std::move(before)}, lines);
    }
    return what.error();
}

rdma::Task<ServedExports::Outcome> ServedExports::change_to(ExportConfig next) {
    Outcome out;
    const auto note = [&out](const rdma::Result<>& done) {
        if (!done) out.trouble += (out.trouble.empty() ? "" : "; ") + done.error().why;
    };
    ExportChange change;
    try {
        change = compare(now_, next);
    } catch (const UsageError& error) {
        out.trouble = error.what();
        co_return out;
    }
    auto ahead = open_ahead(change);
    if (!ahead) {
        out.trouble = ahead.error().why;
        co_return out;
    }
    for (const ExportSpec& spec : change.admitting) admit(spec, out.lines);
    for (const ExportSpec& spec : change.withdrawn) {
        const auto done = co_await withdraw(spec, out.lines);
        note(done);
    }
    for (Opening& opening : *ahead) note(add(std::move(opening), out.lines));
    for (const ExportSpec& spec : change.opened) note(open_late(spec, change, out.lines));
    co_return out;
}

}  // namespace feroce::cli
