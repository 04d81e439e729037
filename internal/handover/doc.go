// Package handover sends state, with the file descriptors that belong to it, from a
// running agent to its successor. It owns the abstract Unix socket @fairlead-handover
// and does not interpret the state.
//
// The successor gets ready first, requests the handover (Ask), and receives the state
// in batches. It acknowledges each batch, and confirms at the end that it owns the state.
// Ownership passes only with that confirmation. Until then the sender is paused, and it
// resumes if the successor fails, does not answer in time or has exited (Give). So
// exactly one of the two owns the state at each moment. The sender closes the connection once it
// has freed its addresses.
package handover
