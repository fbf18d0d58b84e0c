// Package locks keeps named locks in a store, for all who write there: goroutines, processes, machines.
//
// A lock is an object below [muxcore.LockPrefix] that says who holds it. The store's conditional writes decide between
// those who want it, so it must be one whose conditions hold for everybody who writes to it (Capabilities.Locks); the
// first lock tries them out, and is an error where an endpoint lets pass what it should refuse.
//
// # Whose it is
//
// The record has a token, which is new with every lock, a sequence number and a time to live. The holder refreshes it in
// the background, which raises the number. Whoever waits looks at it now and then. If it has not changed for its whole time to
// live, by the clock of the one who waits, its holder is gone, and the lock is taken over by a write on condition that it
// is still the same. Clocks of different machines are never compared.
//
// A holder that cannot refresh in time may lose the lock while it works; it is told by [Settings].Observe. No lock with a time to
// live can rule that out. [Locker.Unlock] never removes the lock of somebody else.
package locks
