// The devices of this process: lazy start, current device, fork.
#pragma once

#include "platform/driver.h"

namespace neuron::runtime {

// Number of cores this process may use. Starts nothing.
int DeviceCount();

// The current device of the calling thread: what SetDevice set on it, else the process default
// (SetDefaultDevice), else 0. Starts nothing.
int CurrentDevice();
// Throws kOutOfRange naming the valid range.
void SetDevice(int index);
void SetDefaultDevice(int index);

// True after the first use of a device in this process.
bool IsInitialized();
// Starts the driver if it was not; every use of a device goes through it. Throws kInternal in a
// forked child of an initialised process, telling to use the "spawn" start method.
void Initialize();
// True in a forked child whose parent had initialised.
bool IsInBadFork();

// Initialize() and the platform's device.
platform::Device& GetDevice(int index);

// Waits for every stream of the device; throws the first kept failure.
void SynchronizeDevice(int index);

}  // namespace neuron::runtime
