#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "checkpoint/formats/pytorch/pickle.h"
#include "checkpoint/formats/pytorch/pytorch.h"
#include "checkpoint/formats/pytorch/pytorch_types.h"
#include "checkpoint/formats/pytorch/zip.h"

namespace heddle::checkpoint {

namespace {

/// Protocol 2, as torch.save: the newest that PyTorch's own restricted reader knows.
class PickleWriter {
 public:
  PickleWriter() {
    Opcode(0x80);
    Opcode(2);
  }
  void Opcode(uint8_t opcode) { out_.Put(opcode); }
  void Global(std::string_view module, std::string_view name) {
    out_.PutRaw(AsBytes(fmt::format("c{}\n{}\n", module, name)));
  }
  void Text(std::string_view text) {
    Opcode('X');
    out_.PutString(text);
  }
  void Integer(int64_t number) {
    if (number == static_cast<int32_t>(number)) {
      Opcode('J');
      out_.Put(static_cast<int32_t>(number));
    } else {
      Opcode(0x8A);
      out_.Put(static_cast<uint8_t>(sizeof(number)));
      out_.Put(number);
    }
  }
  void Tuple(const Shape& numbers) {
    Opcode('(');
    for (const int64_t number : numbers) {
      Integer(number);
    }
    Opcode('t');
  }
  void EmptyOrderedDict() {
    Global("collections", "OrderedDict");
    Opcode(')');
    Opcode('R');
  }
  /// A contiguous tensor that is the whole of storage `key`.
  void Tensor(const OutputTensor& tensor, std::string_view key) {
    Global("torch._utils", "_rebuild_tensor_v2");
    Opcode('(');
    Opcode('(');
    Text("storage");
    Global("torch", PytorchStorageOf(tensor.dtype));
    Text(key);
    Text("cpu");
    Integer(ElementCount(tensor.shape));
    Opcode('t');
    Opcode('Q');
    Integer(0);
    Tuple(tensor.shape);
    Shape strides(tensor.shape.size(), 1);
    for (size_t d = strides.size(); d-- > 1;) {
      strides[d - 1] = strides[d] * std::max<int64_t>(tensor.shape[d], 1);
    }
    Tuple(strides);
    Opcode(0x89);  // No gradient.
    EmptyOrderedDict();
    Opcode('t');
    Opcode('R');
  }
  Bytes Take() { return out_.Take(); }

 private:
  ByteWriter out_;
};

Bytes EncodeStateDict(const std::vector<OutputTensor>& tensors) {
  PickleWriter pickle;
  pickle.EmptyOrderedDict();
  pickle.Opcode('(');
  for (size_t t = 0; t < tensors.size(); ++t) {
    pickle.Text(tensors[t].name);
    pickle.Tensor(tensors[t], fmt::format("{}", t));
  }
  pickle.Opcode('u');
  pickle.Opcode('.');
  return pickle.Take();
}

class PytorchSink : public TensorSink {
 public:
  PytorchSink(std::string path, ZipWriter zip, std::vector<OutputTensor> tensors)
      : path_(std::move(path)),
        zip_(std::move(zip)),
        tensors_(std::move(tensors)) {}

  /// What stands before the first tensor.
  Status Begin() {
    HEDDLE_RETURN_IF_ERROR(Entry("data.pkl", EncodeStateDict(tensors_)));
    HEDDLE_RETURN_IF_ERROR(Entry("byteorder", AsBytes("little")));
    return NextTensors();
  }

  Status Append(std::span<const std::byte> bytes) override {
    if (static_cast<int64_t>(bytes.size()) > missing_) {
      return FailedPreconditionError("{}: more elements than its tensors have", path_);
    }
    HEDDLE_RETURN_IF_ERROR(bytes.empty() ? Status::Ok() : zip_.Append(bytes));
    missing_ -= static_cast<int64_t>(bytes.size());
    return NextTensors();
  }

  Status Finish() override {
    if (missing_ > 0) {
      return FailedPreconditionError("{}: elements of tensor '{}' and what follows are missing",
                                     path_, tensors_[next_ - 1].name);
    }
    HEDDLE_RETURN_IF_ERROR(Entry("version", AsBytes("3\n")));
    return zip_.Finish();
  }

 private:
  Status Entry(const std::string& name, std::span<const std::byte> data) {
    HEDDLE_RETURN_IF_ERROR(zip_.Begin("archive/" + name, static_cast<int64_t>(data.size())));
    return zip_.Append(data);
  }

  /// Begins entries up to one that has bytes to come.
  Status NextTensors() {
    while (missing_ == 0 && next_ < tensors_.size()) {
      missing_ = tensors_[next_].bytes();
      HEDDLE_RETURN_IF_ERROR(zip_.Begin(fmt::format("archive/data/{}", next_), missing_));
      ++next_;
    }
    return Status::Ok();
  }

  const std::string path_;
  ZipWriter zip_;
  const std::vector<OutputTensor> tensors_;
  size_t next_ = 0;      ///< The tensor after the one whose elements are coming.
  int64_t missing_ = 0;  ///< Bytes of the one whose elements are coming.
};

}  // namespace

Result<std::unique_ptr<TensorSink>> CreatePytorchFile(const std::string& path,
                                                      std::vector<OutputTensor> tensors) {
  HEDDLE_ASSIGN_OR_RETURN(auto zip, ZipWriter::Create(path));
  auto sink = std::make_unique<PytorchSink>(path, std::move(zip), std::move(tensors));
  HEDDLE_RETURN_IF_ERROR(sink->Begin());
  return std::unique_ptr<TensorSink>(std::move(sink));
}

}  // namespace heddle::checkpoint
