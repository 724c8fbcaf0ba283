// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace neuron {

std::array<uint8_t, 32> Sha256(std::string_view bytes);

}  // namespace neuron
