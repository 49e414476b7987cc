# cmake -DINPUT=index.html -DOUTPUT=page.cc -P embed.cmake: the page as a C++ array. A line "@name@" stands for the file of
# that name beside it. All in hexadecimal, since CMake's strings give some characters a meaning.
get_filename_component(folder "${INPUT}" DIRECTORY)
file(READ "${INPUT}" bytes HEX)
file(GLOB parts RELATIVE "${folder}" "${folder}/*.css" "${folder}/*.js")
foreach(part ${parts})
  string(HEX "@${part}@\n" line)
  file(READ "${folder}/${part}" content HEX)
  string(REPLACE "${line}" "${content}" bytes "${bytes}")
endforeach()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
# In lines, which compilers read faster.
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
