// What `feroce export` serves now, and how another config is made of it while it runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "block/call_pool.hpp"
#include "cli/export_config.hpp"
#include "feroce/block/server.hpp"

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

// Throws UsageError with one sentence if a server could not go on with `next`. Looks at the files,
// and so may block.
ExportChange compare(const ExportConfig& now, const ExportConfig& next);

// Blocks: for a server that does not run yet.
rdma::Result<block::Export> open_export(rdma::Loop& loop, const ExportSpec& spec);

// The exports of a running server. Whatever may block is done by a thread: the loop goes on.
class ServedExports {
public:
    ServedExports(rdma::Loop& loop, block::Server& server, ExportConfig now)
        : loop_(loop), pool_(block::CallPool::of(loop)), server_(server), now_(std::move(now)) {}

    struct Outcome {
        std::vector<std::string> lines;  // What was changed.
        std::string trouble;             // All that went wrong; empty: nothing did.
    };
    // To what `read` says, which is called in another thread and may throw UsageError. What is
    // known to be wrong beforehand changes nothing. A file that is withdrawn and cannot be opened
    // in its new way is exported as before, if that can be done.
    rdma::Task<Outcome> change_to(std::function<ExportConfig()> read);

private:
    struct Opening {
        ExportSpec spec;
        block::Export what;
    };
    using Lines = std::vector<std::string>;

    // Throws UsageError.
    rdma::Task<rdma::Result<ExportChange>> plan(std::function<ExportConfig()> read);
    rdma::Task<rdma::Result<Opening>> open(ExportSpec spec);
    rdma::Task<rdma::Result<std::vector<Opening>>> open_all(const std::vector<ExportSpec>& specs);
    rdma::Result<> add(Opening opening, Lines& lines);
    void admit(const ExportSpec& spec, Lines& lines);
    // Fails if its last flush did; it is withdrawn all the same.
    rdma::Task<rdma::Result<>> withdraw(const ExportSpec& spec, Lines& lines);
    // In place of those of the same file that were withdrawn.
    rdma::Task<rdma::Result<>> reopen(const ExportChange::Reopened& what, Lines& lines);

    rdma::Loop& loop_;
    std::shared_ptr<block::CallPool> pool_;
    block::Server& server_;
    ExportConfig now_;
};

}  // namespace feroce::cli
