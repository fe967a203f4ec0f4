#include "cuda/copier.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/shortage.hpp"

namespace feroce::cuda {
namespace {

// An event costs a third of a small copy, so small ones share one; a large one has its own, and is
// told of while the next is on its way.
constexpr std::uint64_t kFlightBytes = mem::FarMemory::kPieceBytes;
constexpr std::size_t kFlightJobs = 16;
constexpr std::size_t kEvents = 64;
constexpr std::size_t kDetours = 8;
constexpr std::size_t kQueueRoom = 4096;
// A copy takes 7 to 30 us: the thread looks again that long, and then less and less often.
constexpr std::uint32_t kEagerRounds = 2000;
// The next message often comes soon, and waking a thread takes as long as a copy.
constexpr std::uint32_t kLingerRounds = 200;
constexpr auto kNap = std::chrono::microseconds(20);

constexpr std::size_t lane_of(mem::CopyDirection direction) {
    return direction == mem::CopyDirection::Gather ? 0 : 1;
}

constexpr Error kNoCopies{ENOMEM, "CUDA gives no stream or event to copy GPU memory with"};

}  // namespace

Result<std::unique_ptr<Copier>> Copier::make(const Driver& driver, Context context,
                                             host::Host& host) {
    std::unique_ptr<Copier> copier(new Copier(driver, context));
    TRY(copier->prepare());
    Result<std::unique_ptr<host::Task>> thread = host.spawn([self = copier.get()] { self->run(); });
    if (!thread) return thread.error();
    copier->thread_ = std::move(*thread);
    return copier;
}

Copier::Copier(const Driver& driver, Context context) : driver_(driver), context_(context) {
    queue_.reserve(kQueueRoom);
    todo_.reserve(kQueueRoom);
}

Result<void> Copier::prepare() {
    const Current current(driver_, context_);
    if (!current.entered()) return Error{ENODEV, "the CUDA context of the memory is gone"};
    Result<std::shared_ptr<PinnedPool>> pool = PinnedPool::make(driver_, {});
    if (!pool) return pool.error();
    pool_ = std::move(*pool);
    for (Lane& lane : lanes_)
        if (driver_.stream_create(&lane.stream, kNonBlockingStream) != kSuccess) return kNoCopies;
    for (std::size_t i = 0; i < kEvents; ++i) {
        Flight& flight = idle_flights_.emplace_back();
        flight.jobs.reserve(kFlightJobs);
        flight.detours.reserve(kFlightJobs);
        if (driver_.event_create(&flight.event, kEventWithoutTime) != kSuccess) {
            flight.event = nullptr;
            return kNoCopies;
        }
    }
    for (std::size_t i = 0; i < kDetours; ++i)
        idle_detours_.push_back(pool_->take(mem::FarMemory::kPieceBytes));
    return {};
}

Copier::~Copier() {
    {
        const std::lock_guard hold(mutex_);
        ends_ = true;
    }
    wake_.notify_one();
    thread_.reset();
    for (std::byte* piece : idle_detours_) pool_->give(piece);
    const Current current(driver_, context_);
    if (!current.entered()) return;  // The context took them along.
    for (const Flight& flight : idle_flights_)
        if (flight.event != nullptr) (void)driver_.event_destroy(flight.event);
    for (const Lane& lane : lanes_)
        if (lane.stream != nullptr) (void)driver_.stream_destroy(lane.stream);
    pool_.reset();
}

void Copier::start(Job job) noexcept {
    bool first = false;
    const bool queued = with_memory([&] {
        const std::lock_guard hold(mutex_);
        first = queue_.empty();
        queue_.push_back(job);
    });
    if (!queued) return finish(job, false);
    if (first) wake_.notify_one();
}

void Copier::run() {
    const Current current(driver_, context_);  // Fails for a dead context: then every copy does.
    bool busy = false;
    while (take_jobs(busy)) {
        const bool submitted = submit();
        const bool collected = collect();
        idle_rounds_ = submitted || collected ? 0 : idle_rounds_ + 1;
        busy = done_ < todo_.size() ||
               std::any_of(lanes_.begin(), lanes_.end(),
                           [](const Lane& lane) { return !lane.flights.empty(); });
    }
}

// Busy: copies are on their way, so it does not sleep for long. False: the copier ends.
bool Copier::take_jobs(bool busy) {
    std::unique_lock hold(mutex_);
    // While some of the last ones wait for their turn no more are taken.
    const auto has_more = [this] { return done_ == todo_.size() && !queue_.empty(); };
    if (!busy && idle_rounds_ > kLingerRounds) {
        wake_.wait(hold, [&] { return ends_ || has_more(); });
        idle_rounds_ = 0;
    } else if (!has_more() && idle_rounds_ > kEagerRounds) {
        (void)wake_.wait_for(hold, kNap);
    } else if (!has_more() && idle_rounds_ > 0) {
        hold.unlock();
        std::this_thread::yield();
        hold.lock();
    }
    if (ends_ && !busy && queue_.empty()) return false;
    if (has_more()) {
        todo_.clear();
        todo_.swap(queue_);
        done_ = 0;
    }
    return true;
}

// As much as there are flights and pinned pieces for.
bool Copier::submit() {
    const std::size_t before = done_;
    while (done_ < todo_.size() && launch(todo_[done_])) todo_[done_++].owner.reset();
    for (Lane& lane : lanes_) close_flight(lane);
    return done_ != before;
}

// False: not now.
bool Copier::launch(const Job& job) {
    const mem::Copy& copy = job.copy;
    Lane& lane = lanes_[lane_of(copy.direction)];
    if (lane.open.empty() && idle_flights_.empty()) return false;
    if (!still_there(driver_, *job.place, copy.address, copy.staging.size())) {
        finish(job, false);
        return true;
    }
    std::byte* detour = nullptr;
    if (!pool_->holds(copy.staging)) {
        if (idle_detours_.empty()) return false;
        detour = idle_detours_.back();
        idle_detours_.pop_back();
    }
    std::byte* const host = detour == nullptr ? copy.staging.data() : detour;
    Status status = kSuccess;
    if (copy.direction == mem::CopyDirection::Deliver) {
        if (detour != nullptr) std::memcpy(detour, copy.staging.data(), copy.staging.size());
        status = driver_.copy_to_device(copy.address, host, copy.staging.size(), lane.stream);
    } else {
        status = driver_.copy_to_host(host, copy.address, copy.staging.size(), lane.stream);
    }
    if (status != kSuccess) {
        if (detour != nullptr) idle_detours_.push_back(detour);
        finish(job, false);
        return true;
    }
    add_to_flight(lane, job, detour);
    return true;
}

void Copier::add_to_flight(Lane& lane, const Job& job, std::byte* detour) {
    if (lane.open.empty()) lane.open.splice(lane.open.end(), idle_flights_, idle_flights_.begin());
    Flight& flight = lane.open.front();
    flight.jobs.push_back(job);
    flight.detours.push_back(detour);
    flight.bytes += job.copy.staging.size();
    if (flight.bytes >= kFlightBytes || flight.jobs.size() == kFlightJobs) close_flight(lane);
}

void Copier::close_flight(Lane& lane) {
    if (lane.open.empty()) return;
    if (driver_.event_record(lane.open.front().event, lane.stream) == kSuccess)
        lane.flights.splice(lane.flights.end(), lane.open);
    else
        land(lane.open, false);
}

bool Copier::collect() {
    bool any = false;
    for (Lane& lane : lanes_) {
        while (!lane.flights.empty()) {
            const Status status = driver_.event_query(lane.flights.front().event);
            if (status == kNotReady) break;
            land(lane.flights, status == kSuccess);
            any = true;
        }
    }
    return any;
}

// The first of them.
void Copier::land(Flights& flights, bool good) {
    Flight& flight = flights.front();
    for (std::size_t i = 0; i < flight.jobs.size(); ++i) {
        const mem::Copy& copy = flight.jobs[i].copy;
        std::byte* const detour = flight.detours[i];
        if (detour != nullptr) {
            if (good && copy.direction == mem::CopyDirection::Gather)
                std::memcpy(copy.staging.data(), detour, copy.staging.size());
            idle_detours_.push_back(detour);
        }
        finish(flight.jobs[i], good);
    }
    flight.jobs.clear();
    flight.detours.clear();
    flight.bytes = 0;
    idle_flights_.splice(idle_flights_.end(), flights, flights.begin());
}

void Copier::finish(const Job& job, bool good) {
    job.copy.listener->copy_done(job.copy.token, good);
    job.owner->job_over(job.round);
}

}  // namespace feroce::cuda
