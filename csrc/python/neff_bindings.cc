#include "python/neff_bindings.h"

#include "neff/cache.h"
#include "neff/directory.h"
#include "runtime/metrics.h"
#include "support/error.h"
#include "support/sha256.h"

namespace py = pybind11;

namespace neuron {
namespace {

Hash128 ParseKey(std::string_view hex) {
  const std::optional<Hash128> key = Hash128::FromHex(hex);
  if (!key) NEURON_THROW(kInvalidArgument, "a key has 32 hexadecimal digits, not '", hex, "'");
  return *key;
}

neff::Neff FromPython(const std::string& fingerprint, const py::dict& sections) {
  neff::Neff neff;
  neff.fingerprint = fingerprint;
  for (const auto& [name, bytes] : sections) {
    neff.sections.emplace_back(name.cast<std::string>(), bytes.cast<std::string>());
  }
  return neff;
}

py::dict Sections(const neff::Neff& neff) {
  py::dict out;
  for (const auto& [name, bytes] : neff.sections) out[py::str(name)] = py::bytes(bytes);
  return out;
}

py::object Load(neff::Cache& cache, const std::string& key, const std::string& fingerprint) {
  std::optional<neff::Neff> found;
  {
    const py::gil_scoped_release release;
    found = cache.Load(ParseKey(key), fingerprint);
  }
  return found ? py::object(Sections(*found)) : py::none();
}

void Store(neff::Cache& cache, const std::string& key, const std::string& fingerprint,
           const py::dict& sections) {
  neff::Neff neff = FromPython(fingerprint, sections);
  const py::gil_scoped_release release;
  cache.Store(ParseKey(key), std::move(neff));
}

py::dict Trim(neff::Cache& cache, int64_t max_bytes) {
  neff::Trimmed trimmed;
  {
    const py::gil_scoped_release release;
    trimmed = cache.Trim(max_bytes);
  }
  py::dict out;
  out["files"] = trimmed.files;
  out["bytes"] = trimmed.bytes;
  out["evicted_files"] = trimmed.evicted_files;
  out["evicted_bytes"] = trimmed.evicted_bytes;
  out["stale_files"] = trimmed.stale_files;
  return out;
}

// A context manager: acquired where it is made.
class Lock {
 public:
  Lock(neff::Cache& cache, const std::string& key) : held_(cache.Lock(ParseKey(key))) {}
  bool held() const { return held_ != nullptr; }
  void Release() { held_.reset(); }

 private:
  std::unique_ptr<neff::Cache::KeyLock> held_;
};

}  // namespace

void BindNeff(py::module_& m) {
  py::module_ sub = m.def_submodule("neff", "The on-disk cache of executables.");
  sub.def(
      "serialize",
      [](const std::string& key, const std::string& fingerprint, const py::dict& sections) {
        neff::Neff neff = FromPython(fingerprint, sections);
        neff.key = ParseKey(key);
        return py::bytes(neff::Serialize(neff));
      },
      py::arg("key"), py::arg("fingerprint"), py::arg("sections"));
  sub.def(
      "deserialize",
      [](std::string_view bytes) {
        const neff::Neff neff = neff::Deserialize(bytes);
        return py::make_tuple(neff.key.Hex(), py::bytes(neff.fingerprint), Sections(neff));
      },
      py::arg("bytes"), "(key, fingerprint, sections); ValueError says what is damaged.");
  sub.def(
      "import_file",
      [](const std::string& key, std::string_view bytes) {
        neff::Neff neff = neff::Deserialize(bytes);
        if (neff.key != ParseKey(key)) {
          NEURON_THROW(kInvalidArgument, "the file is of key ", neff.key.Hex(), ", not of ", key);
        }
        const py::gil_scoped_release release;
        neff::Cache::Default().Store(neff.key, neff);
      },
      py::arg("key"), py::arg("bytes"),
      "Puts a file's bytes into the default cache; ValueError says what is damaged.");
  sub.def("sha256", [](std::string_view bytes) {
    const auto digest = Sha256(bytes);
    return py::bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
  });
  sub.def(
      "why_unsafe", [](const std::string& directory) { return neff::WhyUnsafe(directory); },
      py::arg("directory"),
      "Why executables in this directory are not used; empty if they are, or nothing is there.");
  sub.def(
      "rejected", [] { return runtime::GetCompilationMetrics().disk_rejected.load(); },
      "Files of this process's caches that were not trusted, so far.");
  py::class_<Lock>(sub, "Lock")
      .def_property_readonly("held", &Lock::held)
      .def("release", &Lock::Release)
      .def("__enter__", [](Lock& lock) -> Lock& { return lock; })
      .def("__exit__", [](Lock& lock, const py::args&) { lock.Release(); });
  py::class_<neff::Cache>(sub, "Cache")
      .def(py::init([](const std::string& directory, int64_t max_bytes) {
             return std::make_unique<neff::Cache>(directory, max_bytes);
           }),
           py::arg("directory"), py::arg("max_bytes") = -1)
      .def_property_readonly("enabled", &neff::Cache::enabled)
      .def("load", &Load, py::arg("key"), py::arg("fingerprint"), "The sections, or None.")
      .def("store", &Store, py::arg("key"), py::arg("fingerprint"), py::arg("sections"))
      .def("trim", &Trim, py::arg("max_bytes"),
           "Removes what died processes left behind and, above max_bytes (negative: no limit), the "
           "least recently used. Returns files and bytes left, evicted_files and _bytes, "
           "stale_files.")
      .def(
          "lock",
          [](neff::Cache& cache, const std::string& key) {
            return std::make_unique<Lock>(cache, key);
          },
          py::arg("key"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace neuron
