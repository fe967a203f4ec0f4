// What `feroce export` serves now, and how another config is made of it while it runs.
#pragma once

#include <string>
#include <vector>

#include "cli/export_config.hpp"
#include "feroce/block/server.hpp"

namespace feroce::cli {

// From one config to the next.
struct ExportChange {
    std::vector<ExportSpec> withdrawn;  // As they were: removed, or with another place or way.
    std::vector<ExportSpec> opened;     // As they shall be: new, or with another place or way.
    std::vector<ExportSpec> admitting;  // Only who may open them is another.
};

// Throws UsageError with one sentence if a server could not go on with `next`.
ExportChange compare(const ExportConfig& now, const ExportConfig& next);

// Whether two exports are of one file or device, under whatever names.
bool of_one_file(const ExportSpec& one, const ExportSpec& other);

rdma::Result<block::Export> open_export(rdma::Loop& loop, const ExportSpec& spec);

// The exports of a running server.
class ServedExports {
public:
    ServedExports(rdma::Loop& loop, block::Server& server, ExportConfig now)
        : loop_(loop), server_(server), now_(std::move(now)) {}

    struct Outcome {
        std::vector<std::string> lines;  // What was changed.
        std::string trouble;             // All that went wrong; empty: nothing did.
    };
    // What is known to be wrong beforehand changes nothing. A file that is withdrawn and cannot be
    // opened in its new way is exported as before, if that can be done.
    rdma::Task<Outcome> change_to(ExportConfig next);

private:
    struct Opening {
        ExportSpec spec;
        block::Export what;
    };
    using Lines = std::vector<std::string>;

    // Those whose file no export has that is to be withdrawn; the others are left in `change`.
    rdma::Result<std::vector<Opening>> open_ahead(ExportChange& change);
    rdma::Result<> add(Opening opening, Lines& lines);
    void admit(const ExportSpec& spec, Lines& lines);
    // Fails if its last flush did; it is withdrawn all the same.
    rdma::Task<rdma::Result<>> withdraw(const ExportSpec& spec, Lines& lines);
    // In place of those of the same file that were withdrawn.
    rdma::Result<> open_late(const ExportSpec& spec, const ExportChange& change, Lines& lines);

    rdma::Loop& loop_;
    block::Server& server_;
    ExportConfig now_;
};

}  // namespace feroce::cli
