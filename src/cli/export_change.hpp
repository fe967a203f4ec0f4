// What `feroce export` serves now, and how another config is made of it while it runs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "block/call_pool.hpp"
#include "cli/export_config.hpp"
#include "feroce/block/server.hpp"
#include "feroce/time.hpp"

namespace feroce::cli {

// From one config to the next.
struct ExportChange {
    // Of a file or device that an export has which is withdrawn.
    struct Reopened {
        ExportSpec next;
        std::vector<ExportSpec> before;  // Those that have it now.
    };

    std::vector<ExportSpec> withdrawn;  // As they were: removed, or with another place or way.
    std::vector<ExportSpec> opened;     // As they shall be: new, or with another place or way;
    std::vector<Reopened> reopened;     // those whose file must be withdrawn first.
    std::vector<ExportSpec> admitting;  // Only who may open them is another.
};

// Blocks: both are for a server that does not run yet, or for another thread.
std::optional<FileId> find_file(const std::string& path);  // Nothing: there is none.
void find_files(ExportConfig& config);

// Throws UsageError with one sentence if a server could not go on with `next`. Looks at no files:
// those of both were found before.
ExportChange compare(const ExportConfig& now, const ExportConfig& next);

// Blocks: for a server that does not run yet.
rdma::Result<block::Export> open_export(rdma::Loop& loop, const ExportSpec& spec);

// How long a new config waits for files that do not answer.
struct Patience {
    Duration before_telling = std::chrono::seconds(5);  // For each.
    // For all together, until something is changed; then for each that is opened again.
    Duration before_giving_up = std::chrono::seconds(40);
};

// The exports of a running server. Whatever may block is done by a thread: the loop goes on.
class ServedExports {
public:
    // `now` is as find_files() left it.
    ServedExports(rdma::Loop& loop, block::DiskServer& server, ExportConfig now,
                  Patience patience = {})
        : loop_(loop),
          pool_(block::CallPool::of(loop)),
          server_(server),
          now_(std::move(now)),
          patience_(patience) {}

    struct Outcome {
        std::vector<std::string> lines;  // What was changed.
        std::string trouble;             // All that went wrong; empty: nothing did.
    };
    // To what `read` says, which is called in another thread and may throw UsageError. What is
    // known to be wrong beforehand changes nothing. A file that is withdrawn and cannot be opened
    // in its new way is exported as before, if that can be done. A file that does not answer is
    // named on stderr, and in the outcome when it is given up.
    rdma::Task<Outcome> change_to(std::function<ExportConfig()> read);
    // The server is to end: no file is waited for any more. What is being withdrawn is finished.
    void stop() { stop_.request_stop(); }

private:
    struct Opening {
        ExportSpec spec;
        block::Export what;
    };
    using Lines = std::vector<std::string>;

    // `what` is what the task waits for.
    template <class T>
    rdma::Task<rdma::Result<T>> patiently(std::string what, Instant deadline,
                                          rdma::Task<rdma::Result<T>> task);
    // By a thread of its own.
    template <class Function>
    rdma::Task<rdma::Result<std::invoke_result_t<Function>>> ask(std::string what, Instant deadline,
                                                                 Function function);
    // Throws UsageError.
    rdma::Task<rdma::Result<ExportChange>> plan(std::function<ExportConfig()> read,
                                                Instant deadline);
    rdma::Task<rdma::Result<Opening>> open(ExportSpec spec, Instant deadline);
    rdma::Task<rdma::Result<std::vector<Opening>>> open_all(const std::vector<ExportSpec>& specs,
                                                            Instant deadline);
    rdma::Result<> add(Opening opening, Lines& lines);
    void admit(const ExportSpec& spec, Lines& lines);
    // Fails if its last flush did; it is withdrawn all the same.
    rdma::Task<rdma::Result<>> withdraw(const ExportSpec& spec, Lines& lines);
    // In place of those of the same file that were withdrawn.
    rdma::Task<rdma::Result<>> reopen(const ExportChange::Reopened& what, Lines& lines);

    rdma::Loop& loop_;
    std::shared_ptr<block::CallPool> pool_;
    block::DiskServer& server_;
    ExportConfig now_;
    const Patience patience_;
    std::stop_source stop_;
};

}  // namespace feroce::cli
