// See session_port.hpp.
#include "feroce/rtrs/session_port.hpp"

#include <cerrno>
#include <utility>

#include "feroce/elsewhere.hpp"
#include "rtrs/outcome.hpp"
#include "rtrs/session_core.hpp"

namespace feroce::rtrs {

PortTransfer::Note::Note(rdma::Loop& to, PortTransfer& of, void (PortTransfer::*on_arrival)())
    : Message(to,
              [](Message& message) {
                  Note& self = static_cast<Note&>(message);
                  (self.transfer.*self.arrived)();
              }),
      transfer(of),
      arrived(on_arrival) {}

PortTransfer::PortTransfer(rdma::Loop& home, SessionCore& session)
    : Limited(home, [](rdma::Suspension& waiting,
                       int code) { static_cast<PortTransfer&>(waiting).give_up(code); }),
      session_(session),
      submit_(session.loop(), *this, &PortTransfer::submit),
      cancel_(session.loop(), *this, &PortTransfer::cancel),
      done_(home, *this, &PortTransfer::on_done),
      cancelled_(home, *this, &PortTransfer::on_cancelled) {
    request_.transfer = this;
    // Home may end this as soon as it knows.
    request_.done = [](Request& request) { static_cast<Pending&>(request).transfer->done_.post(); };
}

PortTransfer::~PortTransfer() {
    if (!started_ || back()) return;
    ending_ = true;
    give_up(ECANCELED);
    while (!back()) loop().poll_or_wait();
}

bool PortTransfer::start(std::coroutine_handle<> handle, const rdma::Limits* outer) {
    code_ = begin(handle, outer);
    if (code_ != 0) return false;
    request_.limited = limited();
    request_.processor = loop().runtime().current_processor();
    started_ = true;
    submit_.post();
    return true;
}

void PortTransfer::submit() {
    session_.submit(request_);
}

void PortTransfer::cancel() {
    if (request_.state != Request::State::Done)
        session_.cancel(request_, given_up_, why_given_up(given_up_));
    cancelled_.post();
}

void PortTransfer::give_up(int code) {
    if (done_here_ || given_up_ != 0) return;
    given_up_ = code;
    cancel_.post();
}

void PortTransfer::on_done() {
    done_here_ = true;
    if (back() && !ending_) finish();
}

void PortTransfer::on_cancelled() {
    cancelled_here_ = true;
    if (back() && !ending_) finish();
}

Transferred PortTransfer::result() const {
    return code_ == 0 ? result_of(request_) : Transferred(not_made(code_));
}

SessionPort::Shared::~Shared() {
    rdma::Loop& there = core->loop();
    there.post([last = std::move(core)] {});
}

SessionPort::SessionPort(const Session& session, rdma::Loop& home)
    : home_(home),
      shared_(std::shared_ptr<const Shared>(new Shared{
          session.core_, session.name(), session.max_io_size(), session.queue_depth()})) {}

PortTransfer SessionPort::read(ConstSegment message, Segment into) const {
    return {home_, *shared_->core, message, into};
}

PortTransfer SessionPort::read(ConstSegment message, std::span<const Segment> into) const {
    return {home_, *shared_->core, message, into};
}

PortTransfer SessionPort::write(ConstSegment message, ConstSegment from) const {
    return {home_, *shared_->core, message, from};
}

PortTransfer SessionPort::write(ConstSegment message, std::span<const ConstSegment> from) const {
    return {home_, *shared_->core, message, from};
}

rdma::Task<rdma::Result<SessionBuffer>> SessionPort::allocating(std::size_t bytes) const {
    // A buffer that comes when nobody waits any more gives itself back. The function has a name
    // because GCC 12 ends temporaries of an awaiting expression twice.
    auto allocate_there = [shared = shared_, bytes]() -> rdma::Result<SessionBuffer> {
        auto area = shared->core->allocate(bytes);
        if (!area) return area.error();
        return SessionBuffer(shared->core, area->bytes, area->id, true);
    };
    auto made = co_await rdma::call_on(shared_->core->loop(), home_, std::move(allocate_there));
    if (!made) co_return made.error();
    co_return *std::move(made);
}

}  // namespace feroce::rtrs
