package locks

import "context"

// Die ends the refreshes of a lock, as the end of its process does.
func (l *Locker) Die(name string) {
	l.mu.Lock()
	le := l.oldest(name)
	l.mu.Unlock()
	le.cancel()
	le.refreshing.Wait()
}

// KeyOf is where a lock lives.
func KeyOf(name string) string { return keyOf(name) }

// Renewal is a Renew that has found the lock, and has yet to begin.
func (l *Locker) Renewal(name string) func(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.oldest(name).renew
}
