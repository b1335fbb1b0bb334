// CUDA's driver library as far as engine/machine/main/main.cc uses it. The environment says:
//   FAKE_CUDA_INIT   the code that cuInit returns; default 0; "hang": it does not return
//   FAKE_CUDA_CARDS  DMA_BUF,ORDERING,FLUSH of the card at 00000000:01:00.0, of the next after a
//                    ';', and so on; the values are those of cuda.h. CUDA shows no others.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

struct Attributes {
  int dma_buf = 0;
  int ordering = 0;
  int flush = 0;
};

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<Attributes> Cards() {
  std::vector<Attributes> cards;
  std::istringstream texts(Variable("FAKE_CUDA_CARDS"));
  for (std::string text; std::getline(texts, text, ';');) {
    Attributes& card = cards.emplace_back();
    std::sscanf(text.c_str(), "%d,%d,%d", &card.dma_buf, &card.ordering, &card.flush);
  }
  return cards;
}

}  // namespace

extern "C" {

int cuInit(unsigned int /*flags*/) {
  while (Variable("FAKE_CUDA_INIT") == "hang") {
    ::pause();
  }
  return std::atoi(Variable("FAKE_CUDA_INIT").c_str());
}

int cuDeviceGetByPCIBusId(int* card, const char* place) {
  unsigned int bus = 0;
  if (std::sscanf(place, "%*x:%x:", &bus) != 1 || bus == 0 || bus > Cards().size()) {
    return 101;  // CUDA_ERROR_INVALID_DEVICE
  }
  *card = static_cast<int>(bus - 1);
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int card) {
  const Attributes found = Cards().at(static_cast<size_t>(card));
  const std::map<int, int> values = {
      {124, found.dma_buf}, {118, found.ordering}, {117, found.flush}};
  *value = values.at(attribute);
  return 0;
}
}
