# cmake -DINPUT=index.html -DOUTPUT=page.cc -P embed.cmake: a file as a C++ array. Written in pieces, since one string
# literal may not hold it.
file(READ "${INPUT}" bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE "${OUTPUT}" "#include \"vllm/server/service.h\"

namespace vllm::server {
namespace {
constexpr unsigned char kPage[] = {
${bytes}0};
}  // namespace

std::string_view Page() { return {reinterpret_cast<const char*>(kPage), sizeof(kPage) - 1}; }

}  // namespace vllm::server
")
