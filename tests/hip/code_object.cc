#include "tests/hip/code_object.h"

#include <elf.h>

#include <cstring>
#include <stdexcept>

#include "base/strings.h"

namespace hip {
namespace {

// Reads MessagePack, as much as metadata has of it. Throws std::out_of_range where a file ends
// early.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> data) : data_(data) {}

  // Number of entries of a map or an array.
  int64_t Map() {
    const int t = Byte();
    if (t >> 4 == 0x8) return t & 15;
    if (t == 0xde) return Big(2);
    if (t == 0xdf) return Big(4);
    throw std::out_of_range("no map");
  }
  int64_t Array() {
    const int t = Byte();
    if (t >> 4 == 0x9) return t & 15;
    if (t == 0xdc) return Big(2);
    if (t == 0xdd) return Big(4);
    throw std::out_of_range("no array");
  }
  std::string String() {
    const int t = Byte();
    int64_t size = 0;
    if (t >> 5 == 0x5) {
      size = t & 31;
    } else if (t >= 0xd9 && t <= 0xdb) {
      size = Big(1 << (t - 0xd9));
    } else {
      throw std::out_of_range("no string");
    }
    const auto part = Take(size);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }
  int64_t Integer() {
    const int t = Byte();
    if (t < 0x80) return t;
    if (t >= 0xcc && t <= 0xcf) return Big(1 << (t - 0xcc));
    throw std::out_of_range("no integer");
  }
  void Skip() {
    const int t = std::to_integer<int>(data_[At(1)]);
    if (t < 0x80 || (t >= 0xcc && t <= 0xcf)) {
      Integer();
    } else if (t >> 4 == 0x8 || t == 0xde || t == 0xdf) {
      for (int64_t n = Map(); n > 0; --n) Skip(), Skip();
    } else if (t >> 4 == 0x9 || t == 0xdc || t == 0xdd) {
      for (int64_t n = Array(); n > 0; --n) Skip();
    } else if (t == 0xc0 || t == 0xc2 || t == 0xc3 || t >= 0xe0) {
      Byte();
    } else {
      String();
    }
  }

 private:
  size_t At(int64_t bytes) const {
    if (bytes < 0 || static_cast<size_t>(bytes) > data_.size() - at_)
      throw std::out_of_range("the metadata ends early");
    return at_;
  }
  std::span<const std::byte> Take(int64_t bytes) {
    const auto part = data_.subspan(At(bytes), static_cast<size_t>(bytes));
    at_ += static_cast<size_t>(bytes);
    return part;
  }
  int Byte() { return std::to_integer<int>(Take(1)[0]); }
  int64_t Big(int bytes) {
    uint64_t v = 0;
    for (std::byte b : Take(bytes)) v = v << 8 | std::to_integer<uint64_t>(b);
    return static_cast<int64_t>(v);
  }

  std::span<const std::byte> data_;
  size_t at_ = 0;
};

KernelMetadata ReadKernel(Reader& r) {
  KernelMetadata k;
  for (int64_t n = r.Map(); n > 0; --n) {
    const std::string key = r.String();
    const std::pair<const char*, int64_t*> numbers[] = {
        {".vgpr_count", &k.vgprs},
        {".agpr_count", &k.agprs},
        {".sgpr_count", &k.sgprs},
        {".vgpr_spill_count", &k.vgpr_spills},
        {".sgpr_spill_count", &k.sgpr_spills},
        {".private_segment_fixed_size", &k.private_bytes},
        {".group_segment_fixed_size", &k.shared_bytes},
        {".kernarg_segment_size", &k.argument_bytes},
        {".max_flat_workgroup_size", &k.most_threads},
        {".wavefront_size", &k.wave},
    };
    int64_t* number = nullptr;
    for (const auto& [name, to] : numbers) {
      if (key == name) number = to;
    }
    if (number != nullptr) {
      *number = r.Integer();
    } else if (key == ".name") {
      k.name = r.String();
    } else if (key == ".args") {
      for (int64_t count = r.Array(); count > 0; --count) {
        KernelArgument a;
        for (int64_t fields = r.Map(); fields > 0; --fields) {
          const std::string field = r.String();
          if (field == ".value_kind") {
            a.kind = r.String();
          } else if (field == ".offset") {
            a.offset = r.Integer();
          } else if (field == ".size") {
            a.size = r.Integer();
          } else {
            r.Skip();
          }
        }
        k.arguments.push_back(std::move(a));
      }
    } else {
      r.Skip();
    }
  }
  return k;
}

template <class T>
T ReadAt(std::span<const std::byte> file, size_t offset) {
  if (offset > file.size() || sizeof(T) > file.size() - offset)
    throw std::out_of_range("the file ends early");
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

CodeObject Parse(std::span<const std::byte> file) {
  const auto header = ReadAt<Elf64_Ehdr>(file, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != 224)  // EM_AMDGPU
    throw std::out_of_range("this is no ELF for AMD");
  CodeObject code;
  for (int i = 0; i < header.e_phnum; ++i) {
    const auto segment = ReadAt<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type != PT_NOTE) continue;
    for (size_t at = segment.p_offset; at < segment.p_offset + segment.p_filesz;) {
      const auto note = ReadAt<Elf64_Nhdr>(file, at);
      const size_t name = at + sizeof note, body = name + (note.n_namesz + 3) / 4 * 4;
      at = body + (note.n_descsz + 3) / 4 * 4;
      if (at > file.size()) throw std::out_of_range("a note ends early");
      if (note.n_type != 32) continue;  // NT_AMDGPU_METADATA
      Reader r(file.subspan(body, note.n_descsz));
      for (int64_t n = r.Map(); n > 0; --n) {
        const std::string key = r.String();
        if (key == "amdhsa.target") {
          const std::string target = r.String();  // "amdgcn-amd-amdhsa--gfx942:sramecc+"
          const size_t begin = target.rfind("gfx");
          if (begin == std::string::npos) throw std::out_of_range("no target");
          code.arch = target.substr(begin, target.find(':', begin) - begin);
        } else if (key == "amdhsa.kernels") {
          for (int64_t count = r.Array(); count > 0; --count) code.kernels.push_back(ReadKernel(r));
        } else {
          r.Skip();
        }
      }
    }
  }
  if (code.arch.empty()) throw std::out_of_range("there is no metadata");
  return code;
}

}  // namespace

base::Result<CodeObject> ParseCodeObject(std::span<const std::byte> file) {
  try {
    return Parse(file);
  } catch (const std::out_of_range& e) {
    return base::Error{base::Code::kInvalidArgument, fmt::format("code object: {}", e.what())};
  }
}

size_t CodeObjectBytes(const void* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  return header.e_shoff + static_cast<size_t>(header.e_shnum) * header.e_shentsize;
}

}  // namespace hip
