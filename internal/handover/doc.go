// Package handover carries things, and the file descriptors that belong to them, from
// an agent that runs to the one that is to go on in its place. It owns the abstract
// Unix socket @fairlead-handover and knows nothing of what it carries.
//
// The next agent gets ready first, asks (Ask), and gets everything in batches. It
// answers each, and says a last word when it has all. Only with that word is anything
// given: until then the giver has stopped, not ended, and goes on if the other one
// fails, says nothing in time or is gone (Give). So at each moment one of them serves.
// The giver closes the connection when nothing of its own is in the way any more.
package handover
