package locks

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
