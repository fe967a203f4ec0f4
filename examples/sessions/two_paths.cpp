// Stores a value and asks for it, over two networks of which one may fail meanwhile:
// two_paths 10.0.0.1 10.0.1.1
#include <cstdio>
#include <string>

#include "feroce/rtrs/session.hpp"

using namespace feroce;

int main(int, char** argv) {
    rdma::Loop loop;
    rtrs::Client client(loop);
    rtrs::Session session = loop.run(client.open("hello", {{argv[1]}, {argv[2]}})).value();
    const std::string value = "Hello over two paths";
    session.write("greeting", value).wait().value();
    std::string back(value.size(), ' ');
    session.read("greeting", back).wait().value();
    std::puts(back.c_str());
}
