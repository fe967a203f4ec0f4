// See connection.hpp.
#include "block/nbd/connection.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "base/assert.hpp"

namespace feroce::block::nbd {
namespace {

constexpr std::size_t kPartsMax = 256;  // Of one call that sends.

bool is_over(int code) {
    return code != EAGAIN && code != EWOULDBLOCK && code != EINTR;
}

}  // namespace

Connection::Connection(rdma::Loop& loop, int socket, Owner& owner)
    : socket_(socket),
      owner_(owner),
      input_(kInputSize),
      jobs_(std::make_unique<Job[]>(kJobsMax)),
      idle_(kJobsMax),
      replies_(kJobsMax),
      flush_(loop, *this) {
    for (std::size_t i = 0; i < kJobsMax; ++i) idle_.push(&jobs_[i]);
}

Connection::~Connection() {
    ::close(socket_);
}

void Connection::set_ready(std::uint32_t events) {
    hung_up_ |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    readable_ |= hung_up_ || (events & EPOLLIN) != 0;
    writable_ |= (events & EPOLLOUT) != 0;
}

bool Connection::over() const {
    const bool answered = replies_.empty() && negotiation_.output().empty();
    return !asking_ && in_work_ == 0 && (broken_ || (!reads_ && answered));
}

void Connection::end() {
    ended_ = true;
    if (!has_request()) leave();
}

// One whole one may be in the input, or is.
bool Connection::has_request() const {
    if (asking_) return true;
    const bool begins = filling_ == nullptr && input().size() >= Request::kSize;
    return begins && negotiation_.state() == Negotiation::State::Requests;
}

// What is not in work by now is not answered.
void Connection::leave() {
    reads_ = false;
    if (filling_ == nullptr) return;
    release(*std::exchange(filling_, nullptr));
}

void Connection::cut() {
    broken_ = true;
    leave();
    for (; !replies_.empty(); replies_.pop()) release(*replies_.front());
}

bool Connection::wants_input() const {
    if (!readable_ || !reads_ || ended_ || broken_ || asking_) return false;
    if (filling_ != nullptr && !filling_->buffer.empty()) return true;
    return filled_ - used_ < input_.size();
}

bool Connection::work() {
    send();
    bool any = false;
    while (understand()) continue;
    for (int i = 0; i < kInputsPerRound && wants_input() && receive(); ++i) {
        any = true;
        while (understand()) continue;
    }
    if (ended_ && reads_ && !has_request()) leave();
    return any;
}

// Straight to where it belongs, if it is data only.
bool Connection::receive() {
    const bool direct = filling_ != nullptr && !filling_->buffer.empty() && used_ == filled_;
    if (!direct && used_ > 0) {
        std::copy(input_.begin() + static_cast<std::ptrdiff_t>(used_),
                  input_.begin() + static_cast<std::ptrdiff_t>(filled_), input_.begin());
        filled_ -= used_;
        used_ = 0;
    }
    const std::span<std::byte> into =
        direct ? filling_->data().subspan(filling_->filled) : std::span(input_).subspan(filled_);
    const ssize_t got = ::recv(socket_, into.data(), into.size(), 0);
    if (got < 0 && errno == EINTR) return true;
    if (got <= 0) {
        readable_ = false;
        // A client that has shut down its side may still read.
        if (got == 0) ended_ = true;
        if (got < 0 && is_over(errno)) cut();
        return false;
    }
    const auto size = static_cast<std::size_t>(got);
    if (size < into.size() && !hung_up_) readable_ = false;  // What comes later is told.
    (direct ? filling_->filled : filled_) += size;
    return true;
}

bool Connection::understand() {
    if (broken_ || asking_) return false;
    if (negotiation_.state() != Negotiation::State::Requests) return negotiate();
    return filling_ != nullptr ? fill() : begin();
}

bool Connection::negotiate() {
    using State = Negotiation::State;
    if (!reads_ || negotiation_.output().size() > kWordsMax) return false;
    const std::size_t used = negotiation_.take(input());
    used_ += used;
    flush_.schedule();
    if (negotiation_.state() == State::Over) leave();
    if (negotiation_.state() == State::Asks) {
        asking_ = true;
        owner_.on_asked(*this);
    }
    return used > 0;
}

void Connection::described(const ExportInfo& disk) {
    asking_ = false;
    size_ = disk.size;
    negotiation_.describe(disk);
    flush_.schedule();
}

void Connection::refused() {
    asking_ = false;
    negotiation_.refuse();
    if (negotiation_.state() == Negotiation::State::Over) leave();
    flush_.schedule();
}

bool Connection::begin() {
    if (!reads_ || !may_begin() || input().size() < Request::kSize) return false;
    const auto request = Request::parse(input().first<Request::kSize>());
    // Its data could not be told from the next request.
    const bool endless = request && request->is(Command::Write) && request->length > kRequestMax;
    if (!request || endless) {
        cut();
        return false;
    }
    used_ += Request::kSize;
    if (request->is(Command::Disconnect)) {
        leave();
        return false;
    }
    Job& job = *idle_.front();
    idle_.pop();
    job.request = *request;
    job.filled = 0;
    job.body = {};
    take_buffer(job);
    if (request->is(Command::Write))
        filling_ = &job;
    else
        start(job);
    return true;
}

void Connection::take_buffer(Job& job) {
    const Request& request = job.request;
    const bool carries = request.is(Command::Read) || request.is(Command::Write);
    job.buffer = {};
    if (!carries || request.length == 0 || request.length > kRequestMax) return;
    job.buffer = owner_.buffers().take(request.length);
    bytes_ += job.buffer.size();
}

// What has come with the header is copied; without memory it is passed over.
bool Connection::fill() {
    Job& job = *filling_;
    const std::size_t count =
        std::min(input().size(), std::size_t{job.request.length} - job.filled);
    if (!job.buffer.empty()) std::copy_n(input().data(), count, job.buffer.data() + job.filled);
    used_ += count;
    job.filled += count;
    if (job.filled < job.request.length) return false;
    filling_ = nullptr;
    start(job);
    return true;
}

void Connection::start(Job& job) {
    ++in_work_;
    int code = refusal(job.request);
    const bool carries = job.request.is(Command::Read) || job.request.is(Command::Write);
    if (code == 0 && carries && job.buffer.empty()) code = ENOMEM;
    if (code != 0) return reply(job, code);
    try {
        owner_.tasks().spawn(serve(job));
    } catch (const std::bad_alloc&) {
        reply(job, ENOMEM);
    }
}

// Why a request is not tried.
int Connection::refusal(const Request& request) const {
    const bool zeroes = request.is(Command::WriteZeroes);
    if ((request.flags & ~(kFua | (zeroes ? kNoHole : 0))) != 0) return EINVAL;
    if (request.is(Command::Flush)) return 0;
    const bool known = zeroes || request.is(Command::Read) || request.is(Command::Write) ||
                       request.is(Command::Trim);
    if (!known || request.length == 0) return EINVAL;
    if (request.is(Command::Read) && request.length > kRequestMax) return EINVAL;
    const bool inside = request.offset <= size_ && request.length <= size_ - request.offset;
    if (inside) return 0;
    return zeroes || request.is(Command::Write) ? ENOSPC : EINVAL;
}

rdma::Task<void> Connection::serve(Job& job) {
    int code = EIO;
    try {
        code = co_await perform(job);
    } catch (const std::bad_alloc&) {
        code = ENOMEM;
    }
    reply(job, code);
}

rdma::Task<int> Connection::perform(const Job& job) {
    const Disk& disk = owner_.disk();
    const Request& request = job.request;
    const bool fua = (request.flags & kFua) != 0;
    rdma::Result<> done;
    switch (static_cast<Command>(request.command)) {
        case Command::Read:
            done = co_await disk.read(request.offset, job.data());
            break;
        case Command::Write:
            done = co_await disk.write(request.offset, job.data(), {.fua = fua});
            break;
        case Command::Trim:
            done = co_await disk.discard(request.offset, request.length);
            if (done && fua) done = co_await disk.flush();
            break;
        case Command::WriteZeroes:
            done = co_await disk.zero(request.offset, request.length,
                                      {.unmap = (request.flags & kNoHole) == 0, .fua = fua});
            break;
        case Command::Flush:
        case Command::Disconnect:
            done = co_await disk.flush();
            break;
    }
    co_return done ? 0 : code_of(done.error().code);
}

void Connection::reply(Job& job, int code) {
    --in_work_;
    if (broken_) return release(job);
    Reply{static_cast<std::uint32_t>(code), job.request.cookie}.emit(job.head);
    if (code == 0 && job.request.is(Command::Read)) job.body = job.data();
    replies_.push(&job);
    flush_.schedule();
}

void Connection::release(Job& job) {
    if (!job.buffer.empty()) owner_.buffers().give_back(job.buffer);
    bytes_ -= job.buffer.size();
    job.buffer = {};
    idle_.push(&job);
}

// As much as the socket takes. Words of the negotiation come before all replies.
void Connection::send() {
    while (writable_ && !broken_) {
        std::array<iovec, kPartsMax> parts;
        std::size_t count = 0;
        std::size_t skip = sent_;  // Of the first.
        const auto add = [&](std::span<const std::byte> bytes) {
            const std::size_t gone = std::min(skip, bytes.size());
            skip -= gone;
            if (gone == bytes.size()) return;
            const std::byte* const rest = bytes.data() + gone;
            parts[count++] = {const_cast<std::byte*>(rest), bytes.size() - gone};
        };
        if (!negotiation_.output().empty()) {
            add(negotiation_.output());
        } else {
            for (std::size_t i = 0; i < replies_.size() && count + 2 <= kPartsMax; ++i) {
                add(replies_[i]->head);
                add(replies_[i]->body);
            }
        }
        if (count == 0) return;
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = count;
        const ssize_t got = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
        if (got >= 0)
            forget_sent(static_cast<std::size_t>(got));
        else if (is_over(errno))
            cut();
        else if (errno != EINTR)
            writable_ = false;
    }
}

void Connection::forget_sent(std::size_t bytes) {
    sent_ += bytes;
    std::vector<std::byte>& words = negotiation_.output();
    if (!words.empty()) {
        if (sent_ < words.size()) return;
        words.clear();
        sent_ = 0;
        return;
    }
    while (!replies_.empty() && sent_ >= replies_.front()->size()) {
        sent_ -= replies_.front()->size();
        release(*replies_.front());
        replies_.pop();
    }
}

}  // namespace feroce::block::nbd
