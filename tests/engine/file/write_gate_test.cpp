#include "engine/file/write_gate.h"

#include <gtest/gtest.h>

namespace fpfs {
namespace {

TEST(WriteGate, WritesPassSideBySide) {
  WriteGate gate;
  EXPECT_TRUE(gate.try_enter());
  EXPECT_TRUE(gate.try_enter());
  EXPECT_EQ(gate.next_control(), nullptr);
  EXPECT_FALSE(gate.has_controls());
}

TEST(WriteGate, AControlWaitsForActiveWritesAndWritesForIt) {
  WriteGate gate;
  ControlRequest commit;
  WriteRequest first, second;
  ASSERT_TRUE(gate.try_enter());
  gate.add(commit);
  EXPECT_EQ(gate.next_control(), nullptr);
  EXPECT_EQ(gate.head(), &commit);
  EXPECT_FALSE(gate.try_enter());
  gate.park(first);
  gate.park(second);
  gate.leave();
  EXPECT_EQ(gate.next_control(), &commit);
  EXPECT_TRUE(gate.take_parked().is_empty()) << "while a control waits, so do they";
  EXPECT_EQ(&gate.pop_control(), &commit);
  WriteList writes = gate.take_parked();
  EXPECT_EQ(writes.pop_front(), &first);
  EXPECT_EQ(writes.pop_front(), &second);
  EXPECT_TRUE(gate.try_enter());
}

TEST(WriteGate, ControlsKeepTheirOrder) {
  WriteGate gate;
  ControlRequest commit, truncation;
  gate.add(commit);
  gate.add(truncation);
  EXPECT_EQ(&gate.pop_control(), &commit);
  EXPECT_FALSE(gate.try_enter()) << "one is left";
  EXPECT_EQ(gate.next_control(), &truncation);
}

TEST(WriteGateDeathTest, NobodyLeavesWhoHasNotEntered) {
  WriteGate gate;
  EXPECT_DEATH(gate.leave(), "active");
}

}  // namespace
}  // namespace fpfs
