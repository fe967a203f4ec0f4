#include "feroce/loop.hpp"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "feroce/completion_queue.hpp"
#include "feroce/task_group.hpp"
#include "rdma/failure.hpp"

namespace feroce::rdma {
namespace {

// Looking for connection events is a system call, so a busy loop does it this often only.
constexpr Duration kCmInterval = std::chrono::microseconds(20);

// Connection events of one round: a flood of them must not hold up the completions of others.
constexpr int kCmEvents = 64;

// Half a dozen connections of sessions with 512 requests in flight.
constexpr std::uint32_t kCommonEntries = 16384;

// Ends itself when delivered.
struct PostedWork : Message {
    PostedWork(Loop& loop, std::function<void()> what)
        : Message(loop, deliver), work(std::move(what)) {}

    static void deliver(Message& message) {
        const std::unique_ptr<PostedWork> self(&static_cast<PostedWork&>(message));
        self->work();
    }

    std::function<void()> work;
};

CmEvent copy_of(const rdma_cm_event& event) {
    CmEvent out;
    out.type = event.event;
    out.status = event.status;
    out.id = event.id;
    out.parameters = event.param.conn;
    out.parameters.private_data = nullptr;
    if (event.param.conn.private_data != nullptr)
        out.data = PrivateData({static_cast<const std::byte*>(event.param.conn.private_data),
                                event.param.conn.private_data_len});
    return out;
}

}  // namespace

Loop::Loop(std::unique_ptr<Runtime> own, Runtime& runtime, Options options)
    : own_runtime_(std::move(own)),
      runtime_(runtime),
      options_(options),
      background_(std::make_unique<TaskGroup>(*this)) {}

Loop::Loop(Runtime& runtime, Options options) : Loop(nullptr, runtime, options) {}

Loop::Loop(Runtime& runtime) : Loop(nullptr, runtime, Options()) {}

Loop::Loop() : Loop(new RealRuntime) {}

Loop::Loop(Runtime* own) : Loop(std::unique_ptr<Runtime>(own), *own, Options()) {}

Loop::~Loop() {
    background_.reset();
    await_posters();
    fetch_mail();
    while (Message* left = inbox_.pop_front()) {
        left->posted_.store(false, std::memory_order_relaxed);
        if (left->deliver_ == PostedWork::deliver) delete static_cast<PostedWork*>(left);
    }
    common_queues_.clear();
    if (cm_channel_ != nullptr) ::rdma_destroy_event_channel(cm_channel_);
}

void Loop::spawn(Task<void> task) {
    // A loop that is being destroyed starts no task.
    if (background_) background_->spawn(std::move(task));
}

void Loop::post(std::function<void()> work) {
    (new PostedWork(*this, std::move(work)))->post();
}

void Loop::push(Message& message) {
    posting_.fetch_add(1, std::memory_order_seq_cst);
    Message* top = mail_.load(std::memory_order_relaxed);
    do message.below_ = top;
    while (!mail_.compare_exchange_weak(top, &message, std::memory_order_seq_cst,
                                        std::memory_order_relaxed));
    if (Runtime* const in = sleeping_in_.load(std::memory_order_seq_cst)) in->wake();
    posting_.fetch_sub(1, std::memory_order_release);
}

void Loop::withdraw(Message& message) {
    fetch_mail();
    message.unlink();
}

void Loop::fetch_mail() {
    if (mail_.load(std::memory_order_relaxed) == nullptr) return;
    Message* top = mail_.exchange(nullptr, std::memory_order_acquire);
    Message* oldest_first = nullptr;
    while (top != nullptr) {
        Message* below = top->below_;
        top->below_ = oldest_first;
        oldest_first = top;
        top = below;
    }
    for (; oldest_first != nullptr; oldest_first = oldest_first->below_)
        inbox_.push_back(*oldest_first);
}

bool Loop::deliver_mail() {
    fetch_mail();
    if (delivering_.empty()) delivering_.splice(inbox_);
    bool any = false;
    while (Message* message = delivering_.pop_front()) {
        any = true;
        // From here on it may be posted again. Acquire: what was written before it was posted while
        // it lay here is seen by its one delivery.
        message->posted_.exchange(false, std::memory_order_acq_rel);
        contain([message] { message->deliver_(*message); });
    }
    return any;
}

bool Loop::poll_sources() {
    bool any = false;
    // By index: operations may make sources, and the one that is polled may end with true.
    for (std::size_t i = 0; i < sources_.size(); ++i) contain([&] { any |= sources_[i]->poll(); });
    return any;
}

bool Loop::poll_cm() {
    if (cm_channel_ == nullptr) return false;
    rdma_cm_event* event = nullptr;
    int taken = 0;
    for (; taken < kCmEvents && ::rdma_get_cm_event(cm_channel_, &event) == 0; ++taken) {
        const CmEvent copy = copy_of(*event);
        const bool is_request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
        const rdma_cm_id* addressee = is_request ? event->listen_id : event->id;
        auto* handler = static_cast<CmHandler*>(addressee->context);
        ::rdma_ack_cm_event(event);
        if (handler != nullptr) contain([&] { handler->on_cm_event(copy); });
    }
    if (taken == kCmEvents) next_cm_look_ = {};  // The rest in the next round.
    return taken > 0;
}

bool Loop::resume_ready() {
    if (resuming_.empty()) resuming_.splice(ready_);
    bool any = false;
    while (Suspension* next = resuming_.pop_front()) {
        any = true;
        contain([next] { next->waiting_.resume(); });
    }
    return any;
}

void Loop::run_deferred() {
    while (Deferred* next = deferred_.pop_front()) contain([next] { next->run_(*next); });
}

void Loop::tell_exceptions() {
    while (!exceptions_.empty()) {
        const std::exception_ptr oldest = exceptions_.front();
        exceptions_.erase(exceptions_.begin());
        if (!on_exception_) std::rethrow_exception(oldest);
        on_exception_(oldest);
    }
}

void Loop::run() {
    while (!stopping_.load(std::memory_order_acquire)) poll_or_wait();
    stopping_.store(false, std::memory_order_relaxed);
}

void Loop::stop() noexcept {
    stopping_.store(true, std::memory_order_release);
    runtime_.wake();
}

bool Loop::poll() {
    run_deferred();  // Of work that was given to the device between two rounds.
    const bool nested = std::exchange(in_round_, true);
    round_time_ = kNever;
    bool any = deliver_mail();
    any |= poll_sources();
    const Instant moment = round_time();  // Of what came, if that asked; else now.
    if (moment >= next_cm_look_) {
        next_cm_look_ = moment + kCmInterval;
        any |= poll_cm();
    }
    any |= timers_.fire(moment);
    any |= resume_ready();
    run_deferred();
    in_round_ = nested;
    round_time_ = kNever;  // The outer round, if there is one, lasts long already.
    // In a round of a call that blocks in another one, it is nothing of that call's.
    if (!nested) tell_exceptions();
    return any;
}

void Loop::poll_or_wait(Instant until) {
    if (poll()) {
        idle_since_ = kNever;
        return;
    }
    const Instant moment = now();
    idle_since_ = std::min(idle_since_, moment);
    if (moment - idle_since_ < spin_) return runtime_.relax();
    Loop* const self = this;
    wait_for_news({&self, 1}, std::min(until, timers_.next()));
    const bool worth_it = now() - moment < options_.spin_limit;
    spin_ = worth_it ? std::min(2 * spin_, std::max(options_.spin, options_.spin_limit))
                     : options_.spin;
}

void Loop::rest() {
    for (Source* source : sources_) source->arm();
}

void Loop::poll_or_wait_all(std::span<Loop* const> loops) {
    ASSERT(!loops.empty());
    bool any = false;
    for (Loop* loop : loops) any |= loop->poll();
    if (any) return;
    Instant next = kNever;
    for (const Loop* loop : loops) next = std::min(next, loop->timers_.next());
    wait_for_news(loops, next);
}

bool Loop::arm_sources() {
    for (Source* source : sources_) source->arm();
    // What completed before it was armed makes no event.
    return poll_sources();
}

void Loop::add_fds(std::vector<int>& fds) const {
    if (cm_channel_ != nullptr) fds.push_back(cm_channel_->fd);
    for (const Source* source : sources_) fds.push_back(source->fd());
}

bool Loop::has_work() const {
    return mail_.load(std::memory_order_seq_cst) != nullptr || !ready_.empty() ||
           !deferred_.empty();
}

// Loops that sleep in the wait of a runtime. It may be destroyed before some of them: no thread
// that posted to one touches it when this has ended.
class Loop::Asleep {
public:
    Asleep(std::span<Loop* const> loops, Runtime& in) : loops_(loops) {
        for (Loop* loop : loops_) loop->sleeping_in_.store(&in, std::memory_order_seq_cst);
    }
    ~Asleep() {
        for (Loop* loop : loops_) loop->sleeping_in_.store(nullptr, std::memory_order_seq_cst);
        for (const Loop* loop : loops_.subspan(1)) loop->await_posters();
    }
    Asleep(const Asleep&) = delete;
    Asleep& operator=(const Asleep&) = delete;

private:
    std::span<Loop* const> loops_;
};

// The runtime of the first one waits for all.
void Loop::wait_for_news(std::span<Loop* const> loops, Instant until) {
    bool any = false;
    for (Loop* loop : loops) any |= loop->arm_sources();
    if (any) return;
    Loop& first = *loops.front();
    first.fds_.clear();
    for (const Loop* loop : loops) loop->add_fds(first.fds_);
    {
        const Asleep asleep(loops, first.runtime_);
        const auto has_work = [](const Loop* loop) { return loop->has_work(); };
        if (std::none_of(loops.begin(), loops.end(), has_work))
            first.runtime_.wait(until, first.fds_);
    }
    for (Loop* loop : loops) {
        for (Source* source : loop->sources_) source->take_events();
        loop->next_cm_look_ = {};
    }
}

void Loop::await_posters() const {
    while (posting_.load(std::memory_order_seq_cst) != 0) runtime_.relax();
}

Result<rdma_event_channel*> Loop::cm_channel() {
    if (cm_channel_ != nullptr) return cm_channel_;
    rdma_event_channel* channel = ::rdma_create_event_channel();
    if (channel == nullptr) return no_device("no channel for connection events");
    ::fcntl(channel->fd, F_SETFL, ::fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    cm_channel_ = channel;
    return cm_channel_;
}

void Loop::attach(Source& source) {
    sources_.push_back(&source);
    fds_.reserve(sources_.capacity() + 1);  // Going to sleep allocates nothing.
}

void Loop::detach(Source& source) {
    std::erase(sources_, &source);
}

bool Loop::has(const Source& source) const {
    return std::find(sources_.begin(), sources_.end(), &source) != sources_.end();
}

PolledQueue* Loop::common_queue(ibv_context* device) {
    for (auto& [context, queue] : common_queues_)
        if (context == device) return &queue->queue();
    Result<CompletionQueue> made =
        CompletionQueue::create(*this, device, kCommonEntries, options_.vector);
    if (!made) return nullptr;
    common_queues_.emplace_back(device, std::make_unique<CompletionQueue>(*std::move(made)));
    return &common_queues_.back().second->queue();
}

Loop::Sleep Loop::sleep_until(Instant when) {
    return {*this, when};
}

Loop::Sleep Loop::sleep(Duration time) {
    return {*this, after(time)};
}

Loop::Sleep Loop::yield() {
    return {*this, Instant::min()};
}

Loop::Sleep::Sleep(Loop& loop, Instant when)
    : Limited(loop,
              [](Suspension& waiting, int code) {
                  Sleep& self = static_cast<Sleep&>(waiting);
                  if (self.done()) return;
                  // The timer is that of the earlier one, the pause's end or the limit.
                  self.set_code(code == ETIMEDOUT && self.when_ <= self.limit_ ? 0 : code);
                  self.finish();
              }),
      when_(when) {}

bool Loop::Sleep::start(std::coroutine_handle<> handle, const Limits* outer) {
    limit_ = deadline_within(outer);
    limits().add(when_);
    set_code(begin(handle, outer));
    if (code() != ETIMEDOUT || limit_ <= loop().now()) return code() == 0;
    // Its end has come already, and no limit has: others run first nevertheless.
    set_code(0);
    if (detail::at_suspension != nullptr) [[unlikely]]
        detail::at_suspension(*this);
    finish();
    return true;
}

Result<> Loop::Sleep::result() {
    if (code() == ECANCELED) return Error(ECANCELED, "the program asked to stop waiting");
    if (code() == 0) return {};
    return Error(ETIMEDOUT, "the time of the task ended before its pause did");
}

}  // namespace feroce::rdma
