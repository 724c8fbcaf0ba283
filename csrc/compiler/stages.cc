#include "compiler/stages.h"

#include <cctype>
#include <filesystem>
#include <fstream>

#include "support/env.h"
#include "support/error.h"

namespace neuron::compiler {

Stages::Stages(const std::string& graph_name) {
  const std::string& root = env::GetString(env::Id::kStringDebugDir);
  if (root.empty()) return;
  std::string name = graph_name;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  }
  folder_ = root + "/" + name;
}

void Stages::Write(const std::string& file, const std::string& text) const {
  if (!on()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  std::ofstream out(folder_ + "/" + file);
  out << text;
  out.close();
  if (!out) {
    NEURON_THROW(kInvalidArgument, "cannot write ", folder_, "/", file,
                 ": TORCH_NEURONX_DEBUG_DIR must name a directory that can be written");
  }
}

}  // namespace neuron::compiler
