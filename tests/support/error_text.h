#pragma once

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>

namespace fem::testing {

// Does action throw an error that contains text? The wording is part of the interface.
template <typename Action>
::testing::AssertionResult fails_with(const std::string& text, Action action) {
  try {
    action();
  } catch (const c10::Error& error) {
    const std::string got = error.what_without_backtrace();
    if (got.find(text) != std::string::npos) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "expected an error with \"" << text << "\", got \"" << got << "\"";
  }
  return ::testing::AssertionFailure() << "expected an error with \"" << text << "\", got none";
}

}  // namespace fem::testing
