// See resolve.hpp. A name is asked for in a thread of its own, since nothing can end the resolver's
// call: a caller that stops waiting leaves the thread alone.
#include "feroce/resolve.hpp"

#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "feroce/loop.hpp"
#include "feroce/signal.hpp"

namespace feroce::rdma {

namespace {

using Found = Result<std::vector<Address>>;

struct HostAndPort {
    std::string host;
    std::string port;  // Empty: none.
};

HostAndPort split(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return {std::string(text), {}};
    return {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool is_port(const std::string& text) {
    return text.size() <= 5 && std::all_of(text.begin(), text.end(), is_digit) &&
           (text.empty() || std::stoi(text) <= UINT16_MAX);
}

// A last label of digits alone is a mistyped address: no machine is called 10.0.0.300.
bool is_host_name(std::string_view name) {
    if (name.empty() || name.size() > 253) return false;
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' ||
               c == '.' || c == '_';
    };
    if (!std::all_of(name.begin(), name.end(), allowed)) return false;
    const std::string_view last = name.substr(name.rfind('.') + 1);
    return name.back() == '.' || !std::all_of(last.begin(), last.end(), is_digit);
}

Error not_found(const std::string& host, int code) {
    const bool later = code == EAI_AGAIN || code == EAI_SYSTEM || code == EAI_MEMORY;
    const std::string why = code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code);
    return {later ? EAGAIN : ENOENT, "the name '" + host + "' has no address here (" + why +
                                         "); `getent hosts " + host + "` asks the same"};
}

Found ask(const std::string& text) {
    const HostAndPort name = split(text);
    addrinfo hints{};
    hints.ai_flags = AI_ADDRCONFIG;
    hints.ai_socktype = SOCK_DGRAM;  // Else each address comes once for every kind of socket.
    addrinfo* first = nullptr;
    int code = ::getaddrinfo(name.host.c_str(), nullptr, &hints, &first);
    if (code != 0) {  // Where there is but loopback AI_ADDRCONFIG hides it.
        hints.ai_flags = 0;
        code = ::getaddrinfo(name.host.c_str(), nullptr, &hints, &first);
    }
    if (code != 0) return not_found(name.host, code);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(first, ::freeaddrinfo);
    const int port = name.port.empty() ? 0 : std::stoi(name.port);
    std::vector<Address> out;
    for (const addrinfo* at = first; at != nullptr; at = at->ai_next)
        if (at->ai_family == AF_INET || at->ai_family == AF_INET6)
            out.push_back(Address(*at->ai_addr).with_port(static_cast<std::uint16_t>(port)));
    if (out.empty()) return not_found(name.host, EAI_NONAME);
    return out;
}

// Shared by the coroutine that waits and the thread that asks; either may go first.
struct Question {
    std::mutex mutex;
    Loop* loop = nullptr;           // nullptr: nobody waits any more.
    Signal* answered = nullptr;     // Of the coroutine; the loop's thread only.
    std::optional<Found> answer{};  // Written before the loop is told.
};

void answer(const std::shared_ptr<Question>& question, Found found) {
    const std::lock_guard lock(question->mutex);
    if (question->loop == nullptr) return;
    question->answer = std::move(found);
    question->loop->post([question] {
        if (question->answered != nullptr) question->answered->notify_all();
    });
}

// The loop is not touched once this is gone.
class Asker {
public:
    explicit Asker(Loop& loop) : answered_(loop), question_(std::make_shared<Question>()) {
        question_->loop = &loop;
        question_->answered = &answered_;
    }
    ~Asker() {
        const std::lock_guard lock(question_->mutex);
        question_->loop = nullptr;
        question_->answered = nullptr;
    }
    Asker(const Asker&) = delete;
    Asker& operator=(const Asker&) = delete;

    Result<> start(std::string text) try {
        std::thread([question = question_, text = std::move(text)] {
            answer(question, ask(text));
        }).detach();
        return {};
    } catch (const std::system_error&) {
        return Error(EAGAIN, "no thread could be started that asks for the name of a machine");
    }
    // The signal comes by the loop's mail, behind the answer.
    bool done() {
        const std::lock_guard lock(question_->mutex);
        return question_->answer.has_value();
    }
    Signal& answered() { return answered_; }
    Found take() { return *std::move(question_->answer); }

private:
    Signal answered_;
    std::shared_ptr<Question> question_;
};

}  // namespace

Result<> check_host(std::string_view text) {
    Result<> numeric = Address(text).check();
    if (numeric) return numeric;
    const HostAndPort name = split(text);
    if (is_host_name(name.host) && is_port(name.port)) return {};
    return numeric;
}

Found resolve_blocking(std::string_view text) {
    if (Result<> good = check_host(text); !good) return good.error();
    const Address numeric(text);
    if (numeric.check()) return std::vector<Address>{numeric};
    return ask(std::string(text));
}

Task<Found> resolve(Loop& loop, std::string text) {
    if (Result<> good = check_host(text); !good) co_return good.error();
    const Address numeric(text);
    if (numeric.check()) co_return std::vector<Address>{numeric};
    Asker asker(loop);
    if (Result<> started = asker.start(std::move(text)); !started) co_return started.error();
    while (!asker.done())
        if (Result<> waited = co_await asker.answered().wait(); !waited) co_return waited.error();
    co_return asker.take();
}

}  // namespace feroce::rdma
