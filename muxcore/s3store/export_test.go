package s3store

import "time"

// Shrink makes parts smaller, and fewer, than any service has them. The memory for them is that of 16.
func (s *Store) Shrink(size, most int64) {
	s.partSize, s.maxParts = size, most
	s.memory.most = memoryParts * size
}

// Memory is what the bodies under way take.
func (s *Store) Memory() int64 {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.memory.used
}

// Budget is what they may take.
func (s *Store) Budget(size int64) { s.memory.most = size }

// FetchWithin makes the time in which credentials must be had shorter.
func (s *Store) FetchWithin(d time.Duration) { s.keys.longest = d }
