#include "compiler/llvm/link.h"

#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>

#include <cstring>
#include <map>

#include "support/error.h"

namespace neuron::codegen {
namespace {

template <typename T>
T Unwrap(llvm::Expected<T> value) {
  if (!value) NEURON_THROW(kInternal, "generated object: ", llvm::toString(value.takeError()));
  return std::move(*value);
}

class Flattener {
 public:
  explicit Flattener(const llvm::object::ObjectFile& object) : object_(object) {}

  Blob Run(llvm::StringRef entry_symbol) {
    for (const auto& section : object_.sections()) Place(section);
    for (const auto& section : object_.sections()) Relocate(section);
    for (const auto& symbol : object_.symbols()) {
      if (Unwrap(symbol.getName()) == entry_symbol) {
        blob_.entry = AddressOf(symbol);
        return std::move(blob_);
      }
    }
    NEURON_THROW(kInternal, "generated object has no symbol ", entry_symbol.str());
  }

 private:
  void Place(const llvm::object::SectionRef& section) {
    const auto flags = llvm::object::ELFSectionRef(section).getFlags();
    if (!(flags & llvm::ELF::SHF_ALLOC) || section.getSize() == 0) return;
    const llvm::StringRef name = Unwrap(section.getName());
    if (name.starts_with(".eh_frame")) return;  // nothing unwinds through kernels
    if (flags & llvm::ELF::SHF_WRITE)
      NEURON_THROW(kInternal, "generated object has writable data ", name.str());
    const size_t align = section.getAlignment().value();
    blob_.bytes.resize((blob_.bytes.size() + align - 1) / align * align, '\0');
    offsets_[section.getIndex()] = blob_.bytes.size();
    const llvm::StringRef contents = Unwrap(section.getContents());
    blob_.bytes.append(contents.data(), contents.size());
  }

  size_t AddressOf(const llvm::object::SymbolRef& symbol) {
    const auto section = Unwrap(symbol.getSection());
    const auto it =
        section == object_.section_end() ? offsets_.end() : offsets_.find(section->getIndex());
    if (it == offsets_.end()) {
      NEURON_THROW(kInternal, "generated code needs the symbol '", Unwrap(symbol.getName()).str(),
                   "'");
    }
    return it->second + Unwrap(symbol.getValue());
  }

  void Relocate(const llvm::object::SectionRef& relocations) {
    const auto target = Unwrap(relocations.getRelocatedSection());
    if (target == object_.section_end()) return;
    const auto it = offsets_.find(target->getIndex());
    if (it == offsets_.end()) return;
    for (const auto& relocation : relocations.relocations()) {
      const size_t place = it->second + relocation.getOffset();
      const int64_t addend = Unwrap(llvm::object::ELFRelocationRef(relocation).getAddend());
      const auto type = relocation.getType();
      if (type != llvm::ELF::R_X86_64_PC32 && type != llvm::ELF::R_X86_64_PLT32) {
        NEURON_THROW(kInternal, "generated object has relocation type ", type);
      }
      const int64_t value = static_cast<int64_t>(AddressOf(*relocation.getSymbol())) + addend -
                            static_cast<int64_t>(place);
      const auto word = static_cast<int32_t>(value);
      NEURON_CHECK(word == value && place + 4 <= blob_.bytes.size(), "relocation out of range");
      std::memcpy(blob_.bytes.data() + place, &word, 4);
    }
  }

  const llvm::object::ObjectFile& object_;
  std::map<uint64_t, size_t> offsets_;  // section index -> offset in the blob
  Blob blob_;
};

}  // namespace

Blob Flatten(llvm::StringRef object, llvm::StringRef entry_symbol) {
  const llvm::MemoryBufferRef buffer(object, "kernel");
  const auto file = Unwrap(llvm::object::ObjectFile::createELFObjectFile(buffer));
  return Flattener(*file).Run(entry_symbol);
}

}  // namespace neuron::codegen
