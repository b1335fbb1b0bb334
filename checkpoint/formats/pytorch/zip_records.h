/// \file
/// The records of a ZIP archive, with their names in APPNOTE.TXT.
#pragma once

#include <cstdint>

namespace heddle::checkpoint::zip_records {

inline constexpr uint32_t kLocalHeader = 0x04034B50;
inline constexpr uint32_t kDirectoryEntry = 0x02014B50;
inline constexpr uint32_t kEnd = 0x06054B50;
inline constexpr uint32_t kEnd64 = 0x06064B50;
inline constexpr uint32_t kEnd64Locator = 0x07064B50;
inline constexpr int64_t kLocalHeaderBytes = 30;
inline constexpr int64_t kEnd64Bytes = 56;
inline constexpr uint32_t kIn64 = 0xFFFFFFFF;  ///< A 32-bit field's value is in the zip64 field.
inline constexpr uint16_t kZip64Field = 0x0001;

}  // namespace heddle::checkpoint::zip_records
