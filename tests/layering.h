// The rules of the house that a compiler does not check: who may include whom, and how long a file
// may be.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace layering {

// Text of source files by path from the project's root ("src/vt/ir/graph.h").
using Tree = std::map<std::string, std::string>;

// A room by its folder, and the folders or headers (paths from src/) that its files may include
// beside their own folder. base may be included by all.
struct Room {
  std::string_view folder;
  std::vector<std::string_view> may_include;
};
const std::vector<Room>& Rooms();

// Reads the C++ files below `folders` of the project at `root`, without tests/goldens.
Tree ReadTree(const std::string& root, const std::vector<std::string>& folders);

// Each finding is a sentence that starts with "path:line: ".
// Every #include of src/ and apps/ against Rooms(), and that no model family includes another.
std::vector<std::string> CheckIncludes(const Tree& tree);
// Files of more than `limit` lines.
std::vector<std::string> CheckLength(const Tree& tree, int limit);

}  // namespace layering
