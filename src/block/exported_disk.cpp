// See exported_disk.hpp.
#include "block/exported_disk.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace feroce::block {

namespace {

constexpr Error kOvertaken{ESTALE, "another client was granted the disk in between"};

}  // namespace

ExportedDisk::Hold::Hold(std::shared_ptr<ExportedDisk> of, const Claim& claim)
    : disk(std::move(of)),
      session(claim.session),
      name(claim.name),
      client(claim.holder.client),
      generation(disk->record_.generation) {
    disk->holds_.push_back(this);
}

ExportedDisk::Hold::~Hold() {
    std::erase(disk->holds_, this);
}

ExportedDisk::ExportedDisk(Export what, GuestList guests, DiskKeeper& keeper)
    : what_(std::move(what)),
      guests_(std::move(guests)),
      keeper_(keeper),
      shape_(what_.backend->shape()) {
    const auto record = what_.backend->writer_record();
    recorded_ = record.has_value();
    if (recorded_) record_ = *record;
    if (recorded_ && record_.store != 0) {
        lost_ = &keeper_.lost[record_.store];
        if (*lost_ != 0 && record_.generation <= *lost_) flush_failed();
    }
    keeping_.disk = this;
    keeping_.done = [](RecordRequest& request, int error) {
        static_cast<Keeping&>(request).disk->kept(error);
    };
}

Result<void> ExportedDisk::check_store(const Grant& held) const {
    if (recorded_ && held.store != 0 && held.store != record_.store)
        return Error{ESTALE, "the disk's content was replaced in between"};
    return {};
}

Result<std::shared_ptr<ExportedDisk::Hold>> ExportedDisk::claim(const Claim& claim) {
    if (what_.read_only) return Error{EROFS, "the disk is exported for reading only"};
    TRY(check_store(claim.held));
    const bool comes_back = claim.held.generation != 0;
    if (recorded_ && comes_back && claim.held.generation != record_.generation) return kOvertaken;
    for (Hold* const hold : holds_)
        if (hold->session == claim.session && hold->generation == record_.generation)
            return hold->shared_from_this();
    const bool beside = claim.access == AccessMode::Migration;
    if (holds_.size() >= (beside ? 2u : 1u))
        return Error{EPERM, "another client has the disk open for writing"};
    const bool joins = beside && !holds_.empty();
    if (recorded_ && !comes_back) {
        if (!joins) begin_generation();
        add_holder(claim.holder);
    }
    return std::make_shared<Hold>(shared_from_this(), claim);
}

void ExportedDisk::begin_generation() {
    ++record_.generation;
    record_.flush_failed = false;
    record_.holders = {};
    changed();
}

void ExportedDisk::add_holder(const WriterRecord::Holder& holder) {
    if (holder.client == ClientId{}) return;
    const auto is_free = [&](const WriterRecord::Holder& one) {
        const auto has_it = [&](const Hold* hold) { return hold->client == one.client; };
        return one.client == ClientId{} || one.client == holder.client ||
               std::none_of(holds_.begin(), holds_.end(), has_it);
    };
    auto& holders = record_.holders;
    const auto place = std::find_if(holders.begin(), holders.end(), is_free);
    if (place == holders.end()) return;
    *place = holder;
    changed();
}

void ExportedDisk::set_guests(std::vector<std::string> sessions, std::vector<std::string> addresses,
                              GuestList guests) {
    what_.sessions = std::move(sessions);
    what_.addresses = std::move(addresses);
    guests_ = std::move(guests);
}

void ExportedDisk::evict() {
    if (recorded_) begin_generation();
}

void ExportedDisk::closed_by(const ClientId& client) {
    if (client == ClientId{}) return;
    for (WriterRecord::Holder& holder : record_.holders) {
        if (holder.client != client) continue;
        holder = {};
        changed();
    }
    settle();
}

void ExportedDisk::flush_failed() {
    if (record_.flush_failed) return;
    record_.flush_failed = true;
    if (lost_ != nullptr) *lost_ = record_.generation;
    changed();
}

void ExportedDisk::settle(Waiter& waiter) {
    const bool keeps = kept_alive_ != nullptr;
    if (!dirty_ && !keeps) return waiter.on_kept(0);
    (dirty_ ? waiting_ : told_).push_back(waiter);
    settle();
}

void ExportedDisk::settle() {
    if (!dirty_) return;
    keep_again_ = kept_alive_ != nullptr;
    if (!keep_again_) keep();
}

void ExportedDisk::keep() {
    kept_alive_ = shared_from_this();
    ++keeper_.keeping;
    dirty_ = keep_again_ = false;
    told_.splice(waiting_);
    const std::uint64_t before = kept_count_;
    try {
        keeping_.record = record_;
        what_.backend->keep(keeping_);
    } catch (...) {
        keeper_.tell_exception();
        if (kept_count_ == before) kept(EIO);
    }
}

void ExportedDisk::kept(int error) {
    const std::shared_ptr<ExportedDisk> self = std::move(kept_alive_);
    --keeper_.keeping;
    ++kept_count_;
    if (error != 0) dirty_ = true;  // The next change takes it along.
    rdma::List<Waiter> told;
    told.splice(told_);
    while (Waiter* const waiter = told.pop_front()) waiter->on_kept(error);
    if (keep_again_ && kept_alive_ == nullptr) keep();
}

}  // namespace feroce::block
