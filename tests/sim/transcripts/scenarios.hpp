// SPDX-License-Identifier: BSD-3-Clause
// Situations that a reader of the protocol should know. Each has a transcript in transcripts/, which is checked in, so
// that a change of the protocol is a readable difference there. Nothing in them is random (kSteady).
#pragma once

#include <string>
#include <vector>

#include "tests/sim/plan.hpp"

namespace ddp::sim {

struct Scenario {
  std::string name;   // its file's name without ".txt"
  std::string title;  // what happens, and what becomes of the job
  Plan plan;
  bool from_the_start = false;  // else the transcript begins with the first fault
};

std::vector<Scenario> all_scenarios();

// Runs every scenario and writes its transcript into this folder. Returns false if one breaks a promise.
bool write_transcripts(const std::string& folder);
// Compares them with those in this folder and prints the first lines that differ. Returns whether all are alike.
bool compare_transcripts(const std::string& folder);

}  // namespace ddp::sim
