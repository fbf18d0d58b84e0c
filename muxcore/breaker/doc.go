// Package breaker is a circuit breaker for one path: it refuses calls to
// something that keeps failing, and lets a few trials through to find out when
// it is well again.
//
// A [Breaker] is CLOSED (calls pass, failures are counted), OPEN (calls are
// refused at once) or HALF_OPEN (at most a few calls at a time pass, as
// trials). The caller asks [Breaker.Allow] for a [Permit] and gives it back
// with exactly one of Success, Failure or Neutral:
//
//	permit, err := b.Allow()
//	if err != nil {
//		return err // *Error with CodePathOpen or CodePathHalfOpenRejected
//	}
//	defer permit.Neutral() // whatever way we leave; a no-op once reported
//	if err := call(); err != nil {
//		permit.Failure(err.Error())
//		return err
//	}
//	permit.Success()
//
// What a caller can rely on:
//
//   - A permit belongs to the generation of the state it was given in. A result
//     of an older generation changes nothing, so a slow call from before a trip
//     can neither close nor re-open the breaker.
//   - A trial is a lease: one that is never reported back frees its place after
//     Settings.TrialTimeout.
//   - State follows the clock, not the traffic: a breaker becomes HALF_OPEN when
//     its open time is over, whether or not anybody calls. Reading a state never
//     takes a permit.
//   - Calls that were admitted before the trip may still be on their way when it
//     opens; Settings.MaxConcurrent bounds how many that can be.
//   - Subscribers are called in order, after the lock is released.
//
// A closed breaker without failures costs two atomic loads a call and writes
// nothing, so calls on several cores do not slow each other down.
//
// Glossary: path, what is guarded; permit, the right to one call; trial, a call
// admitted while half-open; lease, the longest a trial holds its place; probe, a
// trial made by ourselves instead of a caller; generation, one stay in one state.
package breaker
